"""Targets: the machine that code is made for, read from a spec such as ``cpu -mcpu=znver4``.

``cpu`` alone is this machine, asked through LLVM and sysfs. With ``-mcpu`` or ``-mtriple`` nothing
of this machine is needed: a processor's widest vectors follow from the table below, and its caches
are taken to be of common sizes. ``cuda -arch=sm_90a`` names an NVIDIA GPU, ``cuda`` alone the one
that is here. ``cuda-sim -arch=sm_80`` is the same GPU, played by this machine's CPU. With
``-tf32=1`` products of f32 may run on tensor cores, with operands rounded to ten bits of mantissa.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from .dtypes import DType
from .errors import TargetError
from .gpus import GPUS, Gpu, best_arch, capability, runs_here

_V2 = frozenset({"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ICE = _V4 | {"avx512vnni", "avx512vbmi", "avx512ifma"}
_BF16 = _ICE | {"avx512bf16"}
_NEON = frozenset({"neon", "fp-armv8"})
_ARM = _NEON | {"fullfp16", "dotprod"}

_X86: Mapping[str, frozenset[str]] = MappingProxyType(
    dict.fromkeys(("x86-64",), frozenset({"sse", "sse2"}))
    | dict.fromkeys(("x86-64-v2", "nehalem", "westmere", "silvermont"), _V2)
    | dict.fromkeys(("sandybridge", "ivybridge"), _V2 | {"avx"})
    | dict.fromkeys(("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake"), _V3)
    | dict.fromkeys(("raptorlake", "arrowlake", "znver1", "znver2", "znver3"), _V3)
    | dict.fromkeys(("x86-64-v4", "skylake-avx512", "cascadelake"), _V4)
    | dict.fromkeys(("icelake-client", "icelake-server", "tigerlake", "rocketlake"), _ICE)
    | dict.fromkeys(("cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids"), _BF16)
    | dict.fromkeys(("znver4", "znver5"), _BF16)
)
_AARCH64: Mapping[str, frozenset[str]] = MappingProxyType(
    dict.fromkeys(("generic", "cortex-a53", "cortex-a57", "cortex-a72"), _NEON)
    | dict.fromkeys(("cortex-a76", "cortex-a78", "cortex-x1", "cortex-x2"), _ARM)
    | dict.fromkeys(("neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2"), _ARM)
    | dict.fromkeys(("apple-m1", "apple-m2", "apple-m3", "apple-m4"), _ARM)
)
_PROCESSORS: Mapping[str, Mapping[str, frozenset[str]]] = MappingProxyType(
    {"x86_64": _X86, "aarch64": _AARCH64}
)
_BASELINE: Mapping[str, str] = MappingProxyType({"x86_64": "x86-64", "aarch64": "generic"})
_ARCHITECTURE: Mapping[str, str] = MappingProxyType({"amd64": "x86_64", "arm64": "aarch64"})
_BUILDS_ON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"avx": ("avx", "fma", "f16c"), "avx2": ("avx2", "avx512"), "avx512f": ("avx512",)}
)
"""Without the feature, LLVM drops those that begin like this too."""
_CACHES = (32 << 10, 1 << 20, 16 << 20)  # L1 data, L2, L3 where nothing is known
_KINDS = ("cpu", "llvm", "cuda", "cuda-sim")
_ALIASES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("gpu", "nvidia", "nvptx", "nvptx64", "ptx"), "cuda")
)
"""What people may call a kind, which is only to be told."""
_SIMULATED = "sm_80"  # by cuda-sim that names none: the least with asynchronous copies
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to make code for. ``Target.parse(target.spec)`` gives it back on the same machine.

    ``attributes`` is the feature list as LLVM takes it (``+avx2,-avx512f``); ``features`` those
    that are there. ``l1``, ``l2``, ``l3`` are bytes of one core's data caches (L3: the shared one).
    Of a GPU, ``cpu`` is the architecture, a core is a multiprocessor, and ``tf32`` says whether
    products of f32 may run on tensor cores; ``check``, whether a simulated one watches accesses.
    """

    spec: str
    kind: str
    triple: str
    cpu: str
    attributes: str
    features: frozenset[str]
    cores: int
    threads: int
    l1: int
    l2: int
    l3: int
    tf32: bool = False
    check: bool = True

    @staticmethod
    def parse(spec: str | Target) -> Target:
        """The target that ``spec`` names; ``TargetError`` for one that cannot be."""
        if isinstance(spec, Target):
            return spec
        if not isinstance(spec, str):
            raise TargetError(f"target {spec!r}", 'a target is a text, for example "cpu"')
        if len(spec) > _LONGEST:
            raise TargetError(f"target spec of {len(spec)} characters", f"at most {_LONGEST}")
        words = spec.split()
        if not words or words[0] not in _KINDS:
            raise TargetError(
                f"unknown target {spec!r}",
                "a target starts with cpu, llvm, cuda or cuda-sim",
                hint=(_near(_ALIASES.get(words[0], words[0]), _KINDS) if words else "")
                or 'for example "cpu", "cpu -mcpu=znver4", "cuda -arch=sm_90a"',
            )
        if words[0] in ("cuda", "cuda-sim"):
            known = ("arch", "tf32") if words[0] == "cuda" else ("arch", "tf32", "check")
            return _gpu(words[0], _options(spec, words[1:], known))
        return _cpu(spec, _options(spec, words[1:], ("mtriple", "mcpu", "mattr", "threads")))

    @property
    def is_gpu(self) -> bool:
        """Whether code is scheduled and lowered for a GPU, a simulated one included."""
        return self.kind in ("cuda", "cuda-sim")

    @property
    def gpu(self) -> Gpu:
        """What this GPU holds and how fast it is."""
        if not self.is_gpu:
            raise TargetError(f"target {self.spec!r} is no GPU")
        return GPUS[self.cpu]

    @property
    def host(self) -> Target:
        """The processor that calls the code, and runs it where the GPU is simulated."""
        return Target.parse("cpu") if self.is_gpu else self

    @property
    def is_host(self) -> bool:
        """Whether this machine can run the code. Of a GPU it asks the driver, once."""
        if self.is_gpu:
            return self.kind == "cuda-sim" or runs_here(self.cpu)
        return _runs_here(self.triple, self.features)

    @property
    def machine(self) -> str:
        """The architecture: the triple's first part."""
        return self.triple.partition("-")[0]

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register that is worth using."""
        if "avx512f" in self.features:
            return 512
        return 256 if "avx" in self.features else 128

    @property
    def registers(self) -> int:
        """Number of vector registers; of a GPU, those of one thread, 32 bits wide."""
        if self.is_gpu:
            return self.gpu.registers_per_thread
        return 32 if "avx512f" in self.features or self.machine == "aarch64" else 16

    @property
    def key(self) -> str:
        """What names this target in logs: the same for every machine that runs the same code."""
        if self.is_gpu:
            name = f"{self.kind}-{self.cpu}-tf32" if self.tf32 else f"{self.kind}-{self.cpu}"
            return name if self.kind == "cuda" else f"{name}-{self.host.key.rpartition('-')[2]}"
        text = f"{self.triple} {self.cpu} {','.join(sorted(self.features))}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{self.kind}-{self.machine}-{self.cpu}-{digest}"

    def lanes(self, dtype: DType) -> int:
        """Elements of a type that one vector register holds, at least 1.

        Of a GPU: those of the widest load of one thread, of 16 bytes.
        """
        return max(1, self.vector_bits // (8 * dtype.bytes))


def _near(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def _options(spec: str, words: list[str], known: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            near = _near(name, known)
            hint = near or f"options here: {', '.join(f'-{k}=' for k in known)}"
            raise TargetError(f"unknown option {word!r} in target {spec!r}", hint=hint)
        if not sign or not value:
            raise TargetError(f"option -{name} of target {spec!r} has no value", hint=f"-{name}=..")
        if name in found:
            raise TargetError(f"option -{name} stands twice in target {spec!r}")
        found[name] = value
    return found


def _gpu(kind: str, options: dict[str, str]) -> Target:
    tf32, check = options.get("tf32", "0"), options.get("check", "1")
    for name, value in (("tf32", tf32), ("check", check)):
        if value not in ("0", "1"):
            raise TargetError(f"-{name}={value}", "it is 0 or 1")
    if "arch" in options:
        arch = _arch(options["arch"])
    else:
        arch = _SIMULATED if kind == "cuda-sim" else _arch_here()
    spec = f"{kind} -arch={arch}" + (" -tf32=1" if tf32 == "1" else "")
    spec += " -check=0" if check == "0" else ""
    gpu = GPUS[arch]
    return Target(
        spec=spec, kind=kind, triple="nvptx64-nvidia-cuda", cpu=arch, attributes="",
        features=frozenset(), cores=gpu.multiprocessors, threads=1,
        l1=gpu.shared_per_multiprocessor, l2=gpu.l2, l3=0, tf32=tf32 == "1", check=check == "1",
    )  # fmt: skip


def _arch(name: str) -> str:
    if name in GPUS:
        return name
    number = name.removeprefix("sm_")
    if number.isascii() and number.isdigit() and int(number[:4]) < min(g.sm for g in GPUS.values()):
        raise TargetError(
            f"GPU architecture {name!r} is too old",
            "the assemblers of CUDA 13 (ptxas) take sm_75 and later",
        )
    hint = _near(name, tuple(GPUS)) or f"known: {', '.join(GPUS)}"
    raise TargetError(f"unknown GPU architecture {name!r}", hint=hint)


def _arch_here() -> str:
    number = capability()
    if arch := best_arch(number):
        return arch
    raise TargetError(
        "target 'cuda' does not fit this machine's GPU",
        f"its compute capability is {number // 10}.{number % 10}; CUDA 13 asks for 7.5 or later",
        hint='"cuda-sim" runs GPU code on the CPU',
    )


def _cpu(spec: str, options: dict[str, str]) -> Target:
    named = options.keys() & {"mtriple", "mcpu", "mattr"}
    threads = _threads(options.get("threads"))
    if not named:
        triple, cpu, attributes, features = _host()
        cores, caches = _cores(), _host_caches()
    else:
        triple = _triple(options["mtriple"]) if "mtriple" in options else _host_triple()
        machine = triple.partition("-")[0]
        cpu = options.get("mcpu", _BASELINE[machine])
        attributes = options.get("mattr", "")
        features = _features(machine, cpu, attributes)
        cores, caches = threads, _CACHES
    return Target(
        spec=spec, kind="cpu", triple=triple, cpu=cpu, attributes=attributes, features=features,
        cores=cores, threads=threads, l1=caches[0], l2=caches[1], l3=caches[2],
    )  # fmt: skip


def _triple(text: str) -> str:
    machine, dash, rest = text.partition("-")
    machine = _ARCHITECTURE.get(machine, machine)
    if machine not in _PROCESSORS:
        known = tuple(_PROCESSORS)
        near = _near(machine, known) or f"known: {', '.join(known)}"
        raise TargetError(f"unknown architecture {machine!r} in triple {text!r}", hint=near)
    if not dash or not rest.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise TargetError(f"{text!r} is not a triple", hint="for example aarch64-linux-gnu")
    return f"{machine}-{rest}"


def _features(machine: str, cpu: str, attributes: str) -> frozenset[str]:
    table = _PROCESSORS[machine]
    if cpu not in table:
        near = _near(cpu, tuple(table)) or f"known for {machine}: {', '.join(sorted(table))}"
        raise TargetError(f"unknown processor {cpu!r} for {machine}", hint=near)
    features = set(table[cpu])
    for item in attributes.split(",") if attributes else ():
        name = item[1:]
        if item[:1] not in ("+", "-") or not name.replace(".", "").replace("-", "").isalnum():
            raise TargetError(f"bad feature {item!r} in -mattr", hint="-mattr=+avx2,-avx512f")
        if item[0] == "+":
            features.add(name)
        else:
            gone = _BUILDS_ON.get(name, ())
            features = {f for f in features if f != name and not f.startswith(gone)}
    return frozenset(features)


def _threads(asked: str | None) -> int:
    text = asked if asked is not None else os.environ.get("NESTWRIGHT_NUM_THREADS", "")
    if not text:
        return _cores()
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1024):
        where = "-threads" if asked is not None else "NESTWRIGHT_NUM_THREADS"
        raise TargetError(f"{where}={text!r}", "it must be a whole number from 1 to 1024")
    return int(text)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _host() -> tuple[str, str, str, frozenset[str]]:
    """Triple, processor, LLVM's feature list and the features that are there."""
    import llvmlite.binding as llvm

    cpu = llvm.get_host_cpu_name()
    attributes = llvm.get_host_cpu_features().flatten()
    features = frozenset(a[1:] for a in attributes.split(",") if a.startswith("+"))
    return _host_triple(), cpu, attributes, features


@cache
def _host_triple() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple())


def _runs_here(triple: str, features: frozenset[str]) -> bool:
    here, _, _, there = _host()
    a, b = here.split("-"), triple.split("-")
    return a[0] == b[0] and ("linux" in a) == ("linux" in b) and features <= there


@cache
def _host_caches() -> tuple[int, int, int]:
    """Bytes of L1 data, L2 and L3 of the first core, as Linux tells; else common sizes."""
    found = dict(enumerate(_CACHES, 1))
    for index in range(8):
        folder = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        level, kind, size = (_word(folder / name) for name in ("level", "type", "size"))
        if level in ("1", "2", "3") and kind in ("Data", "Unified") and size[:-1].isdigit():
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 0)
            if unit and len(size) < 10:
                found[int(level)] = max(int(size[:-1]) * unit, 1 << 10)
    return found[1], found[2], found[3]


def _word(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""
