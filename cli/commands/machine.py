"""`nestwright targets` and `nestwright doctor`: what can be built for, and is all well here."""

from __future__ import annotations

import json
import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass

import click

_NEEDED = re.compile(r"(?P<name>[\w.-]+)>=(?P<least>[\d.]+)")
"""A requirement of the distribution; those of extras go on with a condition."""
_NUMBERS = re.compile(r"\d+")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def targets(as_json: bool) -> None:
    """List the targets and what was detected on this machine."""
    from ...autotune.calibrate.store import load
    from ...ir.target import HERE, Target, kinds
    from .calibrate import lines, rows

    host = Target.parse(HERE)
    known = {spec: meaning for kind in kinds() for spec, meaning in kind.specs.items()}
    facts = {
        "key": host.key,
        "triple": host.triple,
        "cpu": host.cpu,
        "family": host.core.family,
        "threads": host.threads,
        "vector_bits": host.vector_bits,
        "vector_registers": host.registers,
        "l1_bytes": host.l1,
        "l2_bytes": host.l2,
        "l3_bytes": host.l3,
        "features": sorted(host.features),
    }
    gpu = _gpu()
    found = load(host)
    if as_json:
        told = {"targets": list(known), "host": facts, "gpu": gpu.told if gpu.ok else None}
        measured = {"calibration": None if found is None else rows(found)}
        click.echo(json.dumps({"version": 1, **told, **measured}))
        return
    for spec, meaning in known.items():
        click.echo(f"{spec:<34} {meaning}")
    click.echo("\nthis machine, as `cpu` sees it:")
    for name, value in facts.items():
        if name != "features":
            click.echo(f"  {name:<17} {value}")
    wide = [f for f in sorted(host.features) if f.startswith(("avx", "fma", "neon", "sve", "amx"))]
    click.echo(f"  {'features':<17} {' '.join(wide) or 'none of note'}")
    for tiles in _tiles():
        click.echo(f"  {tiles.name:<17} {tiles.told}")
    click.echo(f"\nits rates: {_calibration().told}")
    for line in lines(found) if found is not None else ():
        click.echo(line)
    click.echo(f"\nas `cuda` sees it:\n  {gpu.told}")


@dataclass(frozen=True, slots=True)
class Check:
    """A thing that the doctor checked: its name, if it is well, and what was found."""

    name: str
    ok: bool
    told: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(as_json: bool) -> int:
    """Check this installation, and how far times that are measured here now can be trusted.

    Exit 1 if something of the installation is wrong.
    """
    from ...autotune.log.units import counted
    from ...autotune.measure.host.trust import trust
    from ...ir.target import HERE, Target

    findings = [_python(), *_packages(), _clash(), _llvm(), _compiles(), *_cuda(), _ptxas()]
    findings += [*_tiles(), _calibration(), _cluster(), *_settings()]
    found = trust(Target.parse(HERE).threads)
    well = all(f.ok for f in findings)
    if as_json:
        rows = [{"name": f.name, "ok": f.ok, "told": f.told} for f in findings]
        told = {"checks": rows, "measuring": found.to_json()}
        click.echo(json.dumps({"version": 1, "ok": well, **told}))
        return 0 if well else 1
    for f in findings:
        click.echo(f"{'ok ' if f.ok else 'BAD'} {f.name:<24} {f.told}")
    click.echo(f"\nmeasuring with {counted(found.threads, 'thread')}:")
    for c in found.conditions:
        click.echo(f"{'ok ' if c.ok else '?  '} {c.name:<24} {c.told}")
    click.echo(f"{found.told[:1].upper()}{found.told[1:]}.")
    return 0 if well else 1


def _python() -> Check:
    return Check("python", True, f"{platform.python_version()} on {platform.machine()}")


def _packages() -> list[Check]:
    """Check what the distribution requires without extras, and its least versions."""
    from importlib import metadata

    own = _package("nestwright", "0")
    needed = map(_NEEDED.fullmatch, metadata.requires("nestwright") or () if own.ok else ())
    return [own, *(_package(m["name"], m["least"]) for m in needed if m is not None)]


def _package(name: str, least: str) -> Check:
    from importlib import metadata

    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, f"not installed: pip install {name}")
    if _release(found) < _release(least):
        told = f"{found} is too old: pip install '{name}>={least}'"
        return Check(name, False, told)
    return Check(name, True, found)


def _release(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version."""
    return tuple(map(int, _NUMBERS.findall(version.partition("+")[0])[:3]))


def _clash() -> Check:
    """Both distributions of xgboost write the same folder; removing one breaks the other."""
    from importlib import metadata

    owners = sorted(set(metadata.packages_distributions().get("xgboost", [])))
    if len(owners) > 1:
        told = f"{' and '.join(owners)} overwrite each other: uninstall both, then install one"
        return Check("xgboost", False, told)
    if not owners:
        told = "not installed: tuning ranks by its analytic model only (extra: tune or tune-cpu)"
        return Check("xgboost", True, told)
    return Check("xgboost", True, f"{owners[0]} {metadata.version(owners[0])}")


def _llvm() -> Check:
    """Check that what some versions of LLVM get wrong is right in the form that we emit."""
    from ...codegen.driver.llvm_faults import masked_stores

    found = masked_stores()
    return Check("LLVM", found.ours, found.summary)


def _compiles() -> Check:
    """Build and run `x + y` through every floor."""
    import numpy as np

    from ...autotune.build import build
    from ...ir.hlo.text import parse

    text = (
        "HloModule doctor\n\nENTRY main {\n  x = f32[4] parameter(0)\n  y = f32[4] parameter(1)\n"
        "  ROOT z = f32[4] add(x, y)\n}\n"
    )
    x = np.arange(4, dtype=np.float32)
    try:
        got = build(parse(text))(x, x)
    except Exception as e:  # whatever is wrong here is the answer
        return Check("compile and run", False, f"{type(e).__name__}: {e}")
    ok = bool(np.array_equal(got, x + x))
    return Check("compile and run", ok, "x + y is right" if ok else f"x + y came out as {got}")


def _tiles() -> list[Check]:
    """Check if the system grants this process the processor's tile registers, if it has any.

    Code does without them where it does not.
    """
    from ...ir.targets.processor import features_here, tiles_refused

    if "amx_tile" not in features_here():
        return []
    if tiles_refused():
        told = "refused by the system to this process: products use vectors"
        return [Check("tile registers", True, told)]
    return [Check("tile registers", True, "granted by the system (AMX)")]


def _calibration() -> Check:
    from ...autotune.calibrate.store import VARIABLE, load, path
    from ...ir.target import HERE, Target

    host = Target.parse(HERE)
    place = path(host)
    if place is None:
        return Check("calibration", True, f"off ({VARIABLE}); figures of {host.core.family}")
    if load(host) is None:
        told = f"none yet: tuning or `nestwright calibrate` measures; figures of {host.core.family}"
        return Check("calibration", True, told)
    return Check("calibration", True, f"measured, in {place}")


def _cuda() -> list[Check]:
    """Check what target cuda needs to run; all of it is optional."""
    gpu = _gpu()
    return [Check("cuda-python", True, _bindings()), Check("NVIDIA GPU", True, gpu.told)]


def _bindings() -> str:
    """Return the version of what talks to the driver: cuda-python, or of its parts the one that
    does.
    """
    from importlib import metadata

    for name, note in (
        ("cuda-python", ""),
        ("cuda-bindings", " (only its bindings, which is enough)"),
    ):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name) + note
    return "not installed: target cuda builds, but does not run (extra: cuda)"


def _gpu() -> Check:
    """Return the GPU that target cuda means; not ok where there is none."""
    from ...codegen.runtime.cuda.driver import DriverError, driver
    from ...ir.errors import TargetError
    from ...ir.gpus import best_arch, capability

    try:
        api = driver()
        handle = api.call("cuDeviceGet", 0)
        name = api.call("cuDeviceGetName", 128, handle).split(b"\0")[0].decode(errors="replace")
        number, version = capability(), int(api.call("cuDriverGetVersion"))
    except TargetError as error:
        return Check("NVIDIA GPU", False, f"none: {error.why}")
    except DriverError as error:
        return Check("NVIDIA GPU", False, f"not usable: {error.why}")
    arch = best_arch(number) or "too old"
    driven = f"driver for CUDA {version // 1000}.{version % 1000 // 10}"
    return Check("NVIDIA GPU", True, f"{name} ({arch}), {driven}")


def _cluster() -> Check:
    """Check what `tune --scheduler` needs; it is optional."""
    from importlib import metadata

    try:
        told = f"distributed {metadata.version('distributed')} (docs/fleet.md: tune --scheduler)"
    except metadata.PackageNotFoundError:
        told = "not installed: tuning on a cluster needs it (extra: fleet)"
    return Check("Dask", True, told)


def _ptxas() -> Check:
    from ...codegen.targets.cuda import ptxas

    found = ptxas.find()
    if found is None:
        told = "not found: builds for cuda hold PTX only (pip install 'nestwright[ptx]')"
        return Check("ptxas", True, told)
    return Check("ptxas", True, f"{found.version} at {found.path}")


def _settings() -> list[Check]:
    names = sorted(n for n in os.environ if n.startswith("NESTWRIGHT_"))
    return [Check(n, True, f"{os.environ[n]!r} (environment)") for n in names]
