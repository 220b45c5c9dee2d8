"""Targets: the machine that code is made for, read from a spec such as ``cpu -mcpu=znver4``.

Each kind of target has a row, a ``TargetKind``, in a file of its own (``ir.targets``): its options,
the parser of its specs, its name in logs, and the facts that code generation needs. The file is
imported when a spec first names the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from .cores import UNKNOWN, CpuCore
from .errors import TargetError

if TYPE_CHECKING:
    from .dtypes import DType
    from .gpus import Gpu

Work: TypeAlias = Literal["threads", "launches"]
"""How a function's work is spread: loops over a pool of threads, or grids of blocks of threads."""
Place: TypeAlias = Literal["process", "device"]
"""Where code runs: in this process, or on a device with a driver and memory of its own."""

HERE = "cpu"
"""The spec of this machine's processor."""
_LONGEST = 512
KEEP, FLUSH = "keep", "flush"
"""What becomes of numbers below the least normal one of their type, which many processors take up
to a hundred times as long for: they are kept, or an operation takes them for 0 and gives 0 in their
place, of their sign."""


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to make code for. ``Target.parse(target.spec)`` gives it back on the same machine.

    ``attributes`` is the feature list as LLVM takes it (``+avx2,-avx512f``); ``features`` those
    that are there. ``vector_bits`` is the width of the widest vector register that is worth using,
    ``registers`` the number of them. ``l1``, ``l2``, ``l3`` are bytes of one core's data caches
    (L3: the shared one); ``core`` is what else cost models ask of a processor. Of a GPU, ``cpu`` is
    the architecture, a core is a multiprocessor, ``registers`` are those of one thread, 32 bits
    wide, ``vector_bits`` the widest load of one thread, and ``tf32`` says whether products of f32
    may run on tensor cores; ``check``, whether a simulated one watches accesses. ``accuracy`` is
    the largest error that a schedule may add to plain rounding, relative to the root mean square
    of a result: with 0, all compute the same products and sums. ``flushes`` says whether the code
    runs in the mode of the processor in which denormals count as 0 (``FLUSH``).
    """

    spec: str
    kind: str
    triple: str
    cpu: str
    attributes: str
    features: frozenset[str]
    vector_bits: int
    registers: int
    cores: int
    threads: int
    l1: int
    l2: int
    l3: int
    core: CpuCore = UNKNOWN
    tf32: bool = False
    overlap: bool = False
    check: bool = True
    accuracy: float = 0.0
    flushes: bool = False

    @staticmethod
    def parse(spec: str | Target) -> Target:
        """Return the target that ``spec`` names; ``TargetError`` for one that cannot be."""
        if isinstance(spec, Target):
            return spec
        if not isinstance(spec, str):
            raise TargetError(f"target {spec!r}", 'a target is a string, for example "cpu"')
        if len(spec) > _LONGEST:
            raise TargetError(f"target spec of {len(spec)} characters", f"at most {_LONGEST}")
        words = spec.split()
        if not words or words[0] not in KINDS:
            raise _unknown(spec, words)
        found = kind(words[0])
        options = _options(spec, words[1:], found.options)
        if "," in options.get(found.lists, ""):
            raise TargetError(
                f"target {spec!r} names several",
                "one is needed here",
                hint="a built model (.nw) may have several",
            )
        return found.parse(spec, options)

    @staticmethod
    def several(spec: str | Target) -> tuple[Target, ...]:
        """Return the targets of a spec that may name several, as ``cpu -mcpu=x86-64-v2,x86-64-v3``.

        ``TargetError`` as for ``parse``, and for one that is named twice.
        """
        words = spec.split() if isinstance(spec, str) else []
        option = f"-{kind(words[0]).lists}=" if words and words[0] in KINDS else ""
        listed = [n for n, word in enumerate(words) if len(option) > 2 and word.startswith(option)]
        if len(listed) != 1 or isinstance(spec, Target):
            return (Target.parse(spec),)
        names = words[listed[0]].removeprefix(option).split(",")
        if len(set(names)) < len(names):
            raise TargetError(f"target {spec!r}", "names a processor twice")
        head, tail = words[: listed[0]], words[listed[0] + 1 :]
        return tuple(Target.parse(" ".join([*head, f"{option}{n}", *tail])) for n in names)

    @staticmethod
    def restored(spec: str, record: Mapping[str, str]) -> Target:
        """Return the target that ``spec`` named where ``record`` was taken of it."""
        words = spec.split()
        if not words or words[0] not in KINDS or len(spec) > _LONGEST:
            raise _unknown(spec[:_LONGEST], words[:1])
        found = kind(words[0])
        if found.restore is None:
            return Target.parse(spec)
        return found.restore(spec, _options(spec, words[1:], found.options), record)

    @property
    def record(self) -> dict[str, str]:
        """The facts of this machine that ``restored`` needs, beside the spec."""
        return self.row.record(self)

    @property
    def row(self) -> TargetKind:
        """The row of the target's kind."""
        return kind(self.kind)

    @property
    def is_gpu(self) -> bool:
        """True if code is scheduled and lowered for a GPU, a simulated one included."""
        return self.row.work == "launches"

    @property
    def gpu(self) -> Gpu:
        """The GPU's architecture; ``TargetError`` for a target without a GPU."""
        return self.row.gpu(self)

    @property
    def host(self) -> Target:
        """The processor that calls the code."""
        return self.row.host(self)

    @property
    def processor(self) -> Target:
        """The machine whose instructions the code consists of: the host where it is simulated."""
        return self.host if self.row.simulated else self

    @property
    def is_host(self) -> bool:
        """True if this machine can run the code. Of a GPU it asks the driver, once."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The features of a processor, say, that the code needs and this machine does not have."""
        return self.row.missing(self)

    @property
    def flushes_f64(self) -> bool:
        """True if denormals of f64 count as 0, too."""
        return self.flushes and self.row.flushes_f64

    @property
    def machine(self) -> str:
        """The architecture: the triple's first part."""
        return self.triple.partition("-")[0]

    @property
    def key(self) -> str:
        """The target's name in logs, equal for all machines that run the same code."""
        return self.row.key(self)

    @property
    def vectors(self) -> bool:
        """True if a thread has vector registers: it may compute several rows at once."""
        return self.row.work == "threads"

    def lanes(self, dtype: DType) -> int:
        """Return the elements of a type that one vector register holds, at least 1.

        Of a GPU: those of the widest load of one thread, of 16 bytes.
        """
        return max(1, self.vector_bits // (8 * dtype.bytes))


def with_arithmetic(
    target: Target | str, accuracy: float | None = None, denormals: str | None = None
) -> Target:
    """Return a target with its options ``-accuracy`` and ``-denormals``; None leaves one as it is.

    ``TargetError`` for a target without the option, and for a value that it does not take.
    """
    found = Target.parse(target)
    if accuracy is not None and not isinstance(accuracy, Real):
        raise TargetError(f"accuracy={accuracy!r}", "it is a number, such as 1e-5")
    if accuracy is not None and accuracy != found.accuracy:
        found = Target.parse(f"{found.spec} -accuracy={accuracy}")
    if denormals is None or flushes(denormals, "denormals=") == found.flushes:
        return found
    return Target.parse(f"{found.spec} -denormals={denormals}")


def keeping(target: Target) -> Target:
    """Return a target without its option ``-denormals``."""
    if not target.flushes:
        return target
    words = [w for w in target.spec.split() if not w.startswith("-denormals=")]
    return replace(target, spec=" ".join(words), flushes=False)


def flushes(text: object, option: str) -> bool:
    """Return True for ``FLUSH``, False for ``KEEP``; ``TargetError``, which begins with the name of
    the option, for anything else.
    """
    if not isinstance(text, str) or text not in (KEEP, FLUSH):
        raise TargetError(f"{option}{text}", f"it is {KEEP} or {FLUSH}")
    return text == FLUSH


def itself(target: Target) -> Target:
    """Return the target: the host of one that runs on the processor that calls it."""
    return target


def no_gpu(target: Target) -> Gpu:
    """Raise ``TargetError``: what a target without a GPU answers when asked for its GPU."""
    raise TargetError(f"target {target.spec!r} is not a GPU", hint='for example "cuda -arch=sm_90"')


def no_record(target: Target) -> dict[str, str]:
    """Return nothing: what is recorded of a target whose spec says everything."""
    return {}


class TargetKind(NamedTuple):
    """One kind of target.

    ``options`` are the names of a spec's options, which ``parse`` gets with the spec; ``key`` and
    ``missing`` answer ``Target.key`` and ``Target.missing``. A kind whose specs mean this machine
    where they name none has ``record`` and ``restore``, for ``Target.restored``. ``specs`` says,
    for whoever lists the targets, what can be written and what it means; ``nicknames`` are words
    that people may try instead; ``lists`` is the option that may name several. ``groups`` are the
    kinds of groups that are formed for some targets only, those with a sketch for them
    (``ir/hlo/fuse/``). ``rounds`` is false where the machine may cut sums rather than round them,
    as tensor cores do; ``flushes_f64`` where a target that flushes denormals keeps those of f64.
    """

    name: str
    options: tuple[str, ...]
    specs: Mapping[str, str]
    parse: Callable[[str, Mapping[str, str]], Target]
    key: Callable[[Target], str]
    missing: Callable[[Target], tuple[str, ...]]
    host: Callable[[Target], Target] = itself
    gpu: Callable[[Target], Gpu] = no_gpu
    record: Callable[[Target], dict[str, str]] = no_record
    restore: Callable[[str, Mapping[str, str], Mapping[str, str]], Target] | None = None
    work: Work = "threads"
    place: Place = "process"
    simulated: bool = False
    rounds: bool = True
    flushes_f64: bool = True
    groups: frozenset[str] = frozenset()
    nicknames: tuple[str, ...] = ()
    lists: str = ""


KINDS: dict[str, str] = {
    "cpu": ".targets.cpu",
    "llvm": ".targets.cpu",
    "cuda": ".targets.cuda",
    "cuda-sim": ".targets.sim",
}
"""The first word of a spec, and the module whose ``KIND`` is the row of the kind that it names."""


@cache
def kind(word: str) -> TargetKind:
    """Return the kind that specs beginning with a word of ``KINDS`` name."""
    found: TargetKind = import_module(KINDS[word], __package__).KIND
    return found


def kinds() -> tuple[TargetKind, ...]:
    """Return every kind, once."""
    return tuple({id(k): k for k in map(kind, KINDS)}.values())


def _unknown(spec: str, words: list[str]) -> TargetError:
    *most, last = KINDS
    meant = {nick: k.name for k in kinds() for nick in k.nicknames}
    near = did_you_mean(meant.get(words[0], words[0]), tuple(KINDS)) if words else ""
    return TargetError(
        f"unknown target {spec!r}",
        f"a target starts with {', '.join(most)} or {last}",
        hint=near or 'for example "cpu", "cpu -mcpu=znver4", "cuda -arch=sm_90a"',
    )


def did_you_mean(word: str, known: tuple[str, ...], most: int = 1) -> str:
    """Return a hint that names the known words that are closest; "" if none is close."""
    import difflib  # errors need it

    close = difflib.get_close_matches(word, known, n=most, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


def _options(spec: str, words: list[str], known: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            near = did_you_mean(name, known)
            hint = near or f"options here: {', '.join(f'-{k}=' for k in known)}"
            raise TargetError(f"unknown option {word!r} in target {spec!r}", hint=hint)
        if not sign or not value:
            raise TargetError(f"option -{name} of target {spec!r} has no value", hint=f"-{name}=..")
        if name in found:
            raise TargetError(f"option -{name} is given twice in target {spec!r}")
        found[name] = value
    return found
