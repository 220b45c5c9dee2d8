"""The identity of a worker, and if it may measure for a tuner: version, processor, target."""

from __future__ import annotations

import os
import platform

from ...ir.errors import NestwrightError
from ...ir.library.functions import for_children
from ...ir.target import HERE, Target
from ..log.records import device_id
from ..log.tool import code_version
from ..measure.machine import machine_class
from .messages import Identity, Request


def travelling(target: Target) -> str:
    """Return a target's spec with what otherwise depends on where it is read: its threads."""
    named = "threads" in target.row.options and "-threads=" not in target.spec
    return f"{target.spec} -threads={target.threads}" if named else target.spec


def question(target: Target, machine: str = "") -> Request:
    """Return the request that asks a worker if it can measure for a target.

    ``machine`` is the class that it has to be of, "" for any.
    """
    return Request(code_version(), travelling(target), device_id(target), machine, for_children())


def examine(request: Request) -> tuple[Identity, str]:
    """Return who this process is, and why it cannot take a request ("" if it can)."""
    code = code_version()
    me = Identity(f"{platform.node() or 'a worker'}:{os.getpid()}", code, "")
    if code != request.code:
        return me, f"it runs {code or 'an unknown version'}, the tuner {request.code}"
    try:
        target = Target.parse(request.spec)
        if device_id(target) != request.device:
            return me, f"{request.spec!r} means {device_id(target)} there, {request.device} here"
        if not target.is_host:
            return me, f"it cannot run code for {request.spec}"
        machine = machine_class(target)
    except NestwrightError as e:
        return me, str(e).splitlines()[0]
    me = Identity(me.name, code, machine)
    if target.row.place == "process" and target.threads > Target.parse(HERE).cores:
        return me, f"it has fewer cores than the target's {target.threads} threads"
    return me, other_class(machine, request.machine)


def other_class(machine: str, wanted: str) -> str:
    """Return why a machine may not measure with those of class ``wanted``; "" if it may."""
    if not wanted or machine == wanted:
        return ""
    return f"it is another kind of machine ({machine}; the others are {wanted})"
