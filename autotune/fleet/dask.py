"""A pool on a Dask cluster: every worker that offers our resource, each told apart."""

from __future__ import annotations

import ipaddress
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from ...ir.errors import ArgumentError, FleetError
from ...ir.target import Target
from . import work
from .worker_pool import Answer, Cancel, Done, in_words

if TYPE_CHECKING:
    from distributed import Client, Security

CONNECT = 10.0  # seconds to reach a scheduler
NOISY = ("distributed", "distributed.client", "distributed.comm", "distributed.core")
"""Loggers of Dask that print tracebacks where we raise one error."""
TELL = 5.0  # seconds for the cluster to end its idle children


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM format for TLS; what is None comes from Dask's own settings."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


def resource_of(target: Target) -> str:
    """Return the resource that workers offer for a target unless a user names another."""
    return f"nestwright-{target.row.name}"


def starting(address: str, resource: str) -> str:
    """Return how to start a worker."""
    return f"dask worker {address} --nthreads 1 --resources {resource}=1"


@dataclass(eq=False)
class _Sent:
    """A request that is out: Dask's future, once it has one."""

    future: Any = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel it, also if it has no future yet."""
        self.cancelled = True
        if self.future is not None:
            with suppress(Exception):  # there may be nobody to tell
                self.future.cancel()


class DaskPool:
    """The workers of a cluster that offer ``resource``: one request at a time for each unit."""

    def __init__(
        self, client: Client, resource: str, perform: Callable[..., bytes] = work.perform
    ) -> None:
        """``client`` is synchronous; ``perform`` carries out a request."""
        self._client, self._resource, self._perform = client, resource, perform
        self._titles: dict[str, str] = {}
        self._futures: set[Any] = set()

    def workers(self) -> Mapping[str, int]:
        """Return the addresses of the workers that the scheduler knows, and their units."""
        try:
            told = self._client.scheduler_info().get("workers") if self._connected() else None
        except Exception as e:  # of the network, the event loop or the protocol
            raise self._lost(in_words(e)) from None
        if told is None:
            raise self._lost("the connection was lost")
        found = {}
        for address, facts in told.items():
            units = int(facts.get("resources", {}).get(self._resource, 0))
            if units > 0:
                found[address] = units
                self._titles[address] = str(facts.get("name", address))
        return found

    def _connected(self) -> bool:
        return bool(self._client.status == "running")

    def _lost(self, why: str) -> FleetError:
        place = self._client.scheduler.address if self._client.scheduler else "the scheduler"
        return FleetError(f"the Dask scheduler at {place} is gone", why)

    def title(self, worker: str) -> str:
        """Return the name that a worker was started with, else its address."""
        return f"worker {self._titles.get(worker, worker)}"

    def submit(self, worker: str, packet: bytes, models: tuple[bytes, ...], done: Done) -> Cancel:
        """Submit a request to one worker; if that dies, Dask gives it to nobody else.

        Models are sent in a thread: a worker that hangs takes none, and others must not wait.
        """
        out = _Sent()

        def send() -> None:
            try:
                sent = self._client.scatter(list(models), workers=[worker], hash=False)
                self._start(worker, packet, sent, done, out)
            except Exception as e:
                done(CancelledError(in_words(e)))

        if models:
            Thread(target=send, daemon=True).start()
            return out.cancel
        try:
            self._start(worker, packet, [], done, out)
        except Exception as e:  # as in ``workers``
            raise self._lost(in_words(e)) from None
        return out.cancel

    def _start(self, worker: str, packet: bytes, sent: list[Any], done: Done, out: _Sent) -> None:
        if out.cancelled:
            done(CancelledError("the job was cancelled"))
            return
        future = out.future = self._client.submit(
            self._perform,
            packet,
            *sent,
            key=f"nestwright-{uuid4().hex}",
            workers=[worker],
            allow_other_workers=False,
            resources={self._resource: 1},
            pure=False,
        )
        self._futures.add(future)

        def told(finished: Any) -> None:
            self._futures.discard(finished)
            done(_answer(finished))

        future.add_done_callback(told)
        if out.cancelled:  # in between
            out.cancel()

    def close(self) -> None:
        """Let idle children on the workers end, and disconnect; wait little for one that hangs.

        Dask itself would wait until it takes that worker for dead, five minutes.
        """
        telling = Thread(target=self._release, daemon=True)
        telling.start()
        telling.join(TELL)
        with suppress(Exception):
            self._client.close(timeout=TELL)

    def _release(self) -> None:
        with suppress(Exception):  # of the network, or since the client was closed meanwhile
            if self._connected():
                there = list(self.workers())
                self._client.run(work.release, workers=there, on_error="ignore", nanny=False)


def _answer(future: Any) -> Answer:
    try:
        if future.status == "finished":
            return bytes(future.result(timeout=CONNECT))
        if future.status == "error":
            found = future.exception(timeout=CONNECT)
            return found if isinstance(found, BaseException) else RuntimeError(str(found))
    except Exception as e:  # a result whose worker died before it was fetched
        return CancelledError(in_words(e))
    return CancelledError(f"the job was {future.status}")


def connect(address: str, certificates: Certificates, resource: str) -> DaskPool:
    """Return the pool of the cluster whose scheduler is at an address.

    ``ArgumentError`` for an address without encryption that is not this machine's, ``FleetError``
    where no scheduler answers or it refuses.
    """
    address, encrypted = checked(address)
    try:
        from distributed import Client
    except ImportError:
        raise FleetError(
            f"--scheduler {address}",
            "distributed is not installed",
            hint="pip install 'nestwright[fleet]'",
        ) from None
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    security = _security(certificates) if encrypted else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # workers of other versions are refused by name
            client = Client(address, timeout=CONNECT, security=security, set_as_default=False)
    except Exception as e:  # of the network, of TLS, or of a peer that is no scheduler
        hint = f"start one: dask scheduler --host 127.0.0.1; then {starting(address, resource)}"
        raise FleetError(
            f"no Dask scheduler answers at {address}", in_words(e), hint=hint
        ) from None
    return DaskPool(client, resource)


def checked(address: str) -> tuple[str, bool]:
    """Return an address with its protocol, and if it is encrypted; ``ArgumentError`` for others."""
    full = address if "://" in address else f"tcp://{address}"
    what, hint = f"--scheduler {address}", "tls://HOST:PORT, or tcp://127.0.0.1:PORT"
    try:
        parts = urlsplit(full)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as e:
        raise ArgumentError(what, f"it is not an address: {e}", hint=hint) from None
    if scheme not in ("tcp", "tls") or not host or port is None:
        raise ArgumentError(what, "it is not the address of a scheduler", hint=hint)
    if scheme == "tcp" and not _loopback(host):
        raise ArgumentError(
            what,
            "plain tcp to another machine: anyone on the way could run programs here and there",
            hint=f"tls://{host}:{port} with --tls-ca-file, --tls-cert and --tls-key, or Dask's "
            "own settings; or a tunnel to tcp://127.0.0.1",
        )
    return full, scheme == "tls"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _security(certificates: Certificates) -> Security:
    """Return the security of Dask with these files; ``ArgumentError`` for what is not there."""
    from distributed import Security

    c, given = certificates, {}
    names = {
        "tls_ca_file": ("--tls-ca-file", c.authority, "ca-file"),
        "tls_client_cert": ("--tls-cert", c.certificate, "client.cert"),
        "tls_client_key": ("--tls-key", c.key, "client.key"),
    }
    for name, (option, path, _) in names.items():
        if path is not None and not os.path.isfile(path):
            raise ArgumentError(f"{option} {path}", "there is no such file")
        if path is not None:
            given[name] = path
    found = Security(require_encryption=True, **given)
    missing = [
        f"{option} (or distributed.comm.tls.{setting})"
        for name, (option, _, setting) in names.items()
        if getattr(found, name) is None and name != "tls_client_key"
    ]
    if missing:
        raise ArgumentError("a tls:// scheduler needs certificates", f"not given: {missing[0]}")
    return found
