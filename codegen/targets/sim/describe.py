"""The constants in a kernel's module that describe launches, buffers and sites to the runtime.

Their layouts are in ``runtime.sim.structs``; the module also contains the kernel itself, which
passes its arguments and each launch's description to the runtime in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ....ir.loop.nodes import Buffer, Scope
from ....ir.loop.tensor_memory import LANES
from ....ir.target import Target
from ...emit.launches import LaunchNest
from ...runtime.sim import structs
from ..cpu.toolchain import coroutine_end


@dataclass(frozen=True, slots=True)
class Site:
    """A place to wait at. ``calls`` are what is done when all are there: an address and a call."""

    name: str
    scope: int
    calls: tuple[str, ...] = ()


@dataclass
class Described:
    """The description of a launch. ``buffers`` has the announced ones: argument, byte offset, True
    if written.
    """

    nest: LaunchNest
    suspends: bool
    shared_bytes: int
    check: bool = True
    buffers: dict[Buffer, tuple[int, int, bool]] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    slots: int = 0
    hooks: str = "null"
    counters: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)

    def number(self, buffer: Buffer, arg: int, offset: int, written: bool) -> int:
        """Return the number of a buffer's record."""
        self.buffers.setdefault(buffer, (arg, offset, written))
        return list(self.buffers).index(buffer)

    def watched(self, buffer: Buffer) -> bool:
        """True if a buffer of global memory has a shadow."""
        return self.buffers[buffer][2]

    def site(self, site: Site) -> int:
        """Return the state of a thread that waits at a new site; a cluster's barrier is one site
        wherever it stands."""
        if site.scope & structs.CLUSTER and site in self.sites:
            return structs.FIRST_SITE + self.sites.index(site)
        self.sites.append(site)
        return structs.FIRST_SITE + len(self.sites) - 1

    @property
    def granule(self) -> int:
        """Logarithm of the bytes of a cell of shared memory; -1 where there are no cells."""
        shared = [b.dtype.bytes for b in self.buffers if b.scope is Scope.SHARED]
        return min(map(_log2, shared)) if shared and self.check else -1


def _bytes(b: Buffer) -> int:
    return prod(b.shape) * b.dtype.bytes * (LANES if b.scope is Scope.TENSOR else 1)


def _log2(n: int) -> int:
    return n.bit_length() - 1


class SimulatedModule:
    """The parts of a kernel's module, as they are found."""

    def __init__(self, name: str, host: Target) -> None:
        self.name, self.host = name, host
        self.launches: list[Described] = []
        self.products: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.strings: dict[str, str] = {}

    def text(self, threads: Sequence[str], declared: Mapping[str, str], pointers: int) -> str:
        """Return the module, given the threads' functions and the kernel's number of arguments."""
        end = f"declare {coroutine_end()} @llvm.coro.end(ptr, i1, token)"
        launches = [line for n, x in enumerate(self.launches) for line in self._launch(n, x)]
        parts = [
            f'target triple = "{self.host.triple}"',
            *self.products.values(),
            *self._functions(),
            *threads,
            *launches,
            self._entry(pointers),
            *self.strings.values(),
            *sorted({*declared.values(), *_DECLARED, end}),
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{self.host.vector_bits}" }}',
            'attributes #1 = { nounwind presplitcoroutine "prefer-vector-width"='
            f'"{self.host.vector_bits}" }}',
        ]
        return "\n".join([*parts, ""])

    def function(self, stem: str, text: str) -> str:
        """Return the name of a function whose text has ``$`` for it; equal ones are the same."""
        return self.functions.setdefault(text, f"{self.name}.{stem}{len(self.functions)}")

    def _functions(self) -> Iterator[str]:
        for text, name in self.functions.items():
            yield text.replace("@$", f"@{name}", 1)

    def string(self, text: str) -> str:
        """Return the name of a constant string."""
        if text not in self.strings:
            name, data = f"@{self.name}.text{len(self.strings)}", text.encode()
            coded = "".join(f"\\{byte:02X}" for byte in (*data, 0))
            kind = f"[{len(data) + 1} x i8]"
            self.strings[text] = f'{name} = private constant {kind} c"{coded}"'
        return self.strings[text].split()[0]

    def _launch(self, number: int, x: Described) -> Iterator[str]:
        name = f"@{self.name}.launch{number}"
        yield from self._buffers(f"{name}.buffers", x)
        yield from self._sites(f"{name}.sites", x)
        fields = {
            "name": self.string(x.nest.symbol),
            "body": f"@{x.nest.symbol}.thread",
            "suspends": int(x.suspends),
            "shared_bytes": x.shared_bytes,
            "granule": x.granule,
            "count": len(x.buffers),
            "buffers": f"{name}.buffers",
            "slots": x.slots,
            "counters": x.counters,
            "sites": f"{name}.sites",
            "hooks": x.hooks,
        }
        of = {"grid": x.grid, "block": x.nest.block, "ranks": x.nest.cluster}
        for name_of, extents in of.items():
            fields |= {f"{name_of}.{axis}": n for axis, n in zip("xyz", extents, strict=True)}
        yield f"{name} = constant {structs.LAUNCH.constant(fields)}"

    def _buffers(self, name: str, x: Described) -> Iterator[str]:
        rows = [
            {
                "name": self.string(buffer.name),
                "arg": arg,
                "offset": offset,
                "bytes": _bytes(buffer),
                "shift": _log2(buffer.dtype.bytes),
                "shadowed": int(written and x.check),
            }
            for buffer, (arg, offset, written) in x.buffers.items()
        ]
        yield f"{name} = internal constant {structs.BUFFER.constants(rows)}"

    def _sites(self, name: str, x: Described) -> Iterator[str]:
        rows = []
        for number, site in enumerate(x.sites):
            action = f"{name}{number}" if site.calls else "null"
            rows.append({"name": self.string(site.name), "scope": site.scope, "action": action})
            if site.calls:
                yield from _action(action, site)
        yield f"{name} = internal constant {structs.SITE.constants(rows)}"

    def _entry(self, pointers: int) -> str:
        params = ", ".join(f"ptr %p{n}" for n in range(pointers))
        lines = [f"define void @{self.name}({params}) #0 {{", "entry:"]
        lines.append(f"  %args = alloca [{max(1, pointers)} x ptr]")
        for n in range(pointers):
            lines.append(f"  %arg.{n} = getelementptr ptr, ptr %args, i64 {n}")
            lines.append(f"  store ptr %p{n}, ptr %arg.{n}")
        for n in range(len(self.launches)):
            lines.append(f"  call void @nw_sim_launch(ptr @{self.name}.launch{n}, ptr %args)")
        return "\n".join([*lines, "  ret void", "}", ""])


def _action(name: str, site: Site) -> Iterator[str]:
    """Return the name of the function that does what a site is for."""
    yield f"define internal void {name}(ptr %slots, i64 %stride, i64 %count) #0 {{"
    for n, call in enumerate(site.calls):
        start, _, rest = call.partition("|")
        yield f"  %s{n} = {start}"
        yield f"  call {rest.replace('$', f'%s{n}')}"
    yield "  ret void"
    yield "}"


_DECLARED = (
    "declare void @nw_sim_launch(ptr, ptr)",
    "declare ptr @nw_sim_frame(i64)",
    "declare void @nw_sim_wait(i32)",
    "declare ptr @nw_scratch(i64)",
    "declare token @llvm.coro.id(i32, ptr, ptr, ptr)",
    "declare i64 @llvm.coro.size.i64()",
    "declare ptr @llvm.coro.begin(token, ptr)",
    "declare i8 @llvm.coro.suspend(token, i1)",
)
