"""Processors: ``cpu`` is this machine, asked through LLVM and sysfs.

With ``-mcpu`` or ``-mtriple`` nothing of this machine is needed: a processor's widest vectors
follow from the table below, its caches and rates from the rows of ``ir/cores.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from ..cores import Cache, CpuCore, core_of
from ..digests import hex_digest
from ..errors import TargetError
from ..target import KEEP, Target, TargetKind, did_you_mean, flushes
from .processor import (
    SUMMARIES,
    TILE_REGISTERS,
    cores,
    default_threads,
    lacking,
    threads_of,
    tiles_granted,
    triple_here,
)

_V2 = frozenset({"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ICE = _V4 | {"avx512vnni", "avx512vbmi", "avx512ifma"}
_BF16 = _ICE | {"avx512bf16"}
_AMX = _BF16 | {"amx-tile", "amx-int8", "amx-bf16"}
_NEON = frozenset({"neon", "fp-armv8"})
_ARM = _NEON | {"fullfp16", "dotprod"}
_ARM_V86 = _ARM | {"i8mm", "bf16"}
_RV64 = frozenset({"m", "a", "f", "d", "c", "fma"})

_X86: Mapping[str, frozenset[str]] = MappingProxyType(
    dict.fromkeys(("x86-64",), frozenset({"sse", "sse2"}))
    | dict.fromkeys(("x86-64-v2", "nehalem", "westmere", "silvermont"), _V2)
    | dict.fromkeys(("sandybridge", "ivybridge"), _V2 | {"avx"})
    | dict.fromkeys(("x86-64-v3", "haswell", "broadwell", "skylake"), _V3)
    | dict.fromkeys(("znver1", "znver2", "znver3"), _V3)
    | dict.fromkeys(("alderlake", "raptorlake", "arrowlake"), _V3 | {"avxvnni"})
    | dict.fromkeys(("x86-64-v4", "skylake-avx512", "cascadelake"), _V4)
    | dict.fromkeys(("icelake-client", "icelake-server", "tigerlake", "rocketlake"), _ICE)
    | dict.fromkeys(("cooperlake", "znver4", "znver5"), _BF16)
    | dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _AMX)
)
_AARCH64: Mapping[str, frozenset[str]] = MappingProxyType(
    dict.fromkeys(("generic", "cortex-a53", "cortex-a57", "cortex-a72"), _NEON)
    | dict.fromkeys(("cortex-a76", "cortex-a78", "cortex-x1", "neoverse-n1", "apple-m1"), _ARM)
    | dict.fromkeys(("cortex-x2", "neoverse-n2", "neoverse-v1", "neoverse-v2"), _ARM_V86)
    | dict.fromkeys(("apple-m2", "apple-m3", "apple-m4"), _ARM_V86)
)
_RISCV64: Mapping[str, frozenset[str]] = MappingProxyType(
    dict.fromkeys(("sifive-u54", "sifive-u74"), _RV64)  # vectors by -mattr=+v
)
_PROCESSORS: Mapping[str, Mapping[str, frozenset[str]]] = MappingProxyType(
    {"x86_64": _X86, "aarch64": _AARCH64, "riscv64": _RISCV64}
)
_BASELINE: Mapping[str, str] = MappingProxyType(
    {"x86_64": "x86-64", "aarch64": "generic", "riscv64": "sifive-u74"}
)
_ARCHITECTURE: Mapping[str, str] = MappingProxyType({"amd64": "x86_64", "arm64": "aarch64"})
_BUILDS_ON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "avx": ("avx", "fma", "f16c"),
        "avx2": ("avx2", "avx512"),
        "avx512f": ("avx512",),
        "amx-tile": ("amx",),
    }
)
"""Without the feature, LLVM drops those that begin like this too, and with them it adds it."""
_AGAINST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "x86_64": ("-sse", "-sse2", "-cx8", "-64bit", "-64bit-mode", "+16bit-mode", "+32bit-mode"),
        "aarch64": ("-neon", "-fp-armv8"),
        "riscv64": ("-i", "-a", "-f", "-d", "-64bit", "+e", "+32bit"),
    }
)
"""What would break the conventions for calls, or ends the process in LLVM."""
FLUSHING = frozenset({"x86_64", "aarch64"})  # have a mode in which denormals count as 0
_BETWEEN = str.maketrans("", "", "._-")
_NAMED = {"mtriple", "mcpu", "mattr"}  # options that make it another machine than this one
_LOOSEST = 0.03  # a larger bound would not tell a wrong result from a rounded one


def processors() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Return the processors that ``-mcpu`` may name and their features, by architecture."""
    return _PROCESSORS


def _parse(spec: str, options: Mapping[str, str]) -> Target:
    if not options.keys() & _NAMED:
        triple, cpu, attributes, features = _host()
    else:
        triple = _triple(options["mtriple"]) if "mtriple" in options else triple_here()
        machine = triple.partition("-")[0]
        cpu = options.get("mcpu", _BASELINE[machine])
        attributes = options.get("mattr", "")
        features = _features(machine, cpu, attributes)
    return _made(spec, options, (triple, cpu, attributes, features))


def _made(
    spec: str, options: Mapping[str, str], code: tuple[str, str, str, frozenset[str]]
) -> Target:
    """Return the target of a spec for code of this triple, processor, attributes, features."""
    triple, cpu, attributes, features = code
    named = options.keys() & _NAMED
    asked = options.get("threads")
    threads = default_threads() if asked is None else threads_of(asked, "-threads")
    wide = "avx512f" in features
    x86 = triple.startswith("x86_64-")
    vector_bits = 512 if wide else 256 if "avx" in features else 128
    core = core_of(cpu, vector_bits, x86)
    if not named:
        core = _with_host_caches(core)
    return Target(
        spec=spec,
        kind=KIND.name,
        triple=triple,
        cpu=cpu,
        attributes=attributes,
        features=features,
        vector_bits=vector_bits,
        registers=16 if x86 and not wide else 32,
        cores=threads if named else cores(),
        threads=threads,
        l1=core.l1.size,
        l2=core.l2.size,
        l3=core.l3.size,
        core=core,
        accuracy=_accuracy(options.get("accuracy", "0")),
        flushes=_flushes(options.get("denormals", KEEP), triple.partition("-")[0]),
    )


def _restored(spec: str, options: Mapping[str, str], code: Mapping[str, str]) -> Target:
    """Return the target that a spec named where ``code`` was recorded of it."""
    if code.keys() != {"triple", "cpu", "attributes", "features"}:
        raise TargetError(f"target {spec!r}", "its record is not complete")
    features = frozenset(filter(None, code["features"].split(",")))
    _triple(code["triple"])
    found = code["triple"], code["cpu"], code["attributes"], features
    return _made(spec, options, found)


def _recorded(target: Target) -> dict[str, str]:
    return {
        "triple": target.triple,
        "cpu": target.cpu,
        "attributes": target.attributes,
        "features": ",".join(sorted(target.features)),
    }


def _accuracy(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _LOOSEST:
        raise TargetError(f"-accuracy={text}", f"it must be a number from 0 to {_LOOSEST}")
    return found


def _flushes(text: str, machine: str) -> bool:
    found = flushes(text, "-denormals=")
    if found and machine not in FLUSHING:
        raise TargetError(f"-denormals={text}", f"{machine} processors always keep denormals")
    return found


def _triple(text: str) -> str:
    machine, dash, rest = text.partition("-")
    machine = _ARCHITECTURE.get(machine, machine)
    if machine not in _PROCESSORS:
        known = tuple(_PROCESSORS)
        near = did_you_mean(machine, known) or f"known: {', '.join(known)}"
        raise TargetError(f"unknown architecture {machine!r} in triple {text!r}", hint=near)
    if not dash or not rest.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise TargetError(f"{text!r} is not a triple", hint="for example aarch64-linux-gnu")
    return f"{machine}-{rest}"


def _features(machine: str, cpu: str, attributes: str) -> frozenset[str]:
    table = _PROCESSORS[machine]
    if cpu not in table:
        near = did_you_mean(cpu, tuple(table)) or f"known for {machine}: {', '.join(sorted(table))}"
        raise TargetError(f"unknown processor {cpu!r} for {machine}", hint=near)
    features = set(table[cpu])
    for item in attributes.split(",") if attributes else ():
        name = item[1:]
        _require_feature(machine, item)
        if item[0] == "+":
            features |= {name, *(base for base, on in _BUILDS_ON.items() if name.startswith(on))}
        else:
            gone = _BUILDS_ON.get(name, ())
            features = {f for f in features if f != name and not f.startswith(gone)}
    return frozenset(features)


def _require_feature(machine: str, item: str) -> None:
    """Raise ``TargetError`` unless an item of ``-mattr`` adds or takes away a known feature."""
    name = item[1:]
    if item[:1] not in ("+", "-") or not name.translate(_BETWEEN).isalnum():
        raise TargetError(f"bad feature {item!r} in -mattr", hint="-mattr=+avx2,-avx512f")
    if item in _AGAINST[machine]:
        how = "have" if item[0] == "-" else "do not have"
        raise TargetError(f"-mattr={item}", f"programs for {machine} {how} this feature")
    if any(name in known for known in _PROCESSORS[machine].values()):
        return
    from .features import features_of

    every = features_of(machine)
    if every and name not in every:
        near = did_you_mean(name, tuple(sorted(every)), 3)
        raise TargetError(f"unknown feature {name!r} for {machine}", hint=near)


@cache
def _host() -> tuple[str, str, str, frozenset[str]]:
    """Triple, processor, LLVM's feature list and the features that are there."""
    import llvmlite.binding as llvm

    cpu = llvm.get_host_cpu_name()
    found = llvm.get_host_cpu_features()
    if found.get(TILE_REGISTERS) and not tiles_granted():
        found.update({name: False for name in found if name.startswith("amx")})
    attributes = found.flatten()
    listed = frozenset(a[1:] for a in attributes.split(",") if a.startswith("+"))
    features = listed - SUMMARIES  # so that keys of logs are those of any LLVM
    return triple_here(), cpu, attributes, features


def _missing(target: Target) -> tuple[str, ...]:
    """Return the features that the code needs and this machine lacks, or its kind of machine."""
    a, b = triple_here().split("-"), target.triple.split("-")
    if a[0] != b[0]:
        return (f"an {target.machine} processor",)
    if ("linux" in a) != ("linux" in b):
        return (f"the system of {target.triple}",)
    found = lacking(target.features, target.machine)
    if found and not _NAMED & {w.lstrip("-").partition("=")[0] for w in target.spec.split()}:
        # Code that was made here; LLVM may know features that the kernel does not list.
        known = _host()[3] if _host.cache_info().currsize else frozenset[str]()
        return tuple(f for f in found if f not in known)
    return found


def _key(target: Target) -> str:
    suffix = f"-accuracy{target.accuracy:g}" if target.accuracy else ""
    text = f"{target.triple} {target.cpu} {','.join(sorted(target.features))}"
    digest = hex_digest(text.encode())[:8]
    return f"{target.kind}-{target.machine}-{target.cpu}-{digest}{suffix}"


@cache
def _with_host_caches(core: CpuCore) -> CpuCore:
    """Return the row with the data caches of this machine's first core, as far as Linux tells."""
    caches = {1: core.l1, 2: core.l2, 3: core.l3}
    for index in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        level = _word(f"{folder}/level")
        if level in ("1", "2", "3") and _word(f"{folder}/type") in ("Data", "Unified"):
            caches[int(level)] = _read_cache(folder, caches[int(level)])
    return core._replace(l1=caches[1], l2=caches[2], l3=caches[3])


def _read_cache(folder: str, row: Cache) -> Cache:
    """Return a cache with the size, ways and line that sysfs tells; the row's where it does not."""
    size = _word(f"{folder}/size")
    unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 0)
    if unit and size[:-1].isdigit() and len(size) < 10:
        row = row._replace(size=max(int(size[:-1]) * unit, 1 << 10))
    ways, line = _word(f"{folder}/ways_of_associativity"), _word(f"{folder}/coherency_line_size")
    if ways.isdigit() and 1 <= int(ways[:6]) <= 1024:
        row = row._replace(ways=int(ways[:6]))
    if line in ("16", "32", "64", "128", "256"):
        row = row._replace(line=int(line))
    return row


def _word(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


KIND = TargetKind(
    name="cpu",
    options=("mtriple", "mcpu", "mattr", "threads", "accuracy", "denormals"),
    specs={
        "cpu": "this machine",
        "cpu -mcpu=NAME": "this architecture, another processor (znver4, skylake-avx512, ...)",
        "cpu -mcpu=NAME,NAME": "several processors in one file, chosen when it is loaded",
        "llvm -mtriple=TRIPLE -mcpu=NAME": "another architecture, as object code",
        "cpu -accuracy=BOUND": "schedules may add an error, relative to a result's rms (1e-5)",
        "cpu -denormals=flush": "denormals count as 0, as many processors are faster with",
    },
    parse=_parse,
    key=_key,
    missing=_missing,
    restore=_restored,
    record=_recorded,
    lists="mcpu",
    groups=frozenset({"attention", "blocked", "pieces", "planes", "transposed"}),
)
