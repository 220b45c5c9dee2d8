"""Horizontal fusion in a build: groups whose kernels run in one launch, on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from ...ir.errors import UnsupportedError
from ...ir.hlo.nodes import Computation
from ...ir.hlo.text.canonical import canonical_text
from ...ir.loop.nodes import Func
from ...ir.target import Target
from ...schedule.language.trace import Trace
from ..lower.gpu.horizontal_fusion import PARTS, LaunchNeeds, fuse_functions, may_fuse, shapes
from ..plan.code.kernel import KernelCode
from ..plan.groups import Groups, symbol
from ..plan.horizontal_fusion import FusedKernel, HorizontalFusion
from ..targets.registry import backend
from ..targets.timings import timed
from .compile_group import LoweredGroup, buffer_sizes, lower_text, workspace_bytes


@dataclass
class FusedKernels:
    """Fuses the kernels of groups, given by key, under these schedules.

    A group is lowered when it is first asked if it fits, unless it is ``known``, by symbol; so are
    the fused kernels in ``made``.
    """

    groups: Mapping[str, Computation]
    target: Target
    traces: Mapping[str, Trace]
    timings: dict[str, float]
    made: dict[str, LoweredFusedKernel] = field(default_factory=dict)
    known: dict[str, LoweredGroup] = field(default_factory=dict)
    _shapes: dict[str, tuple[LaunchNeeds, ...]] = field(default_factory=dict)

    def fusion(self, workspace: Mapping[str, int]) -> HorizontalFusion:
        """Return what a plan asks; ``workspace`` has the bytes of each kernel, by key."""
        return HorizontalFusion(workspace, self.fits, self.join)

    def fits(self, keys: tuple[str, ...]) -> bool:
        """True if these kernels may be fused, and it pays."""
        return len(keys) <= PARTS and may_fuse(list(map(self.shapes, keys)), self.target.gpu)

    def shapes(self, key: str) -> tuple[LaunchNeeds, ...]:
        """Return the shapes of a kernel's launches."""
        if key not in self._shapes:
            self._shapes[key] = shapes(self.lowered(key).flat)
        return self._shapes[key]

    def lowered(self, key: str) -> LoweredGroup:
        """Return a group, lowered."""
        name = symbol(key)
        if name not in self.known:
            text, trace = canonical_text(self.groups[key]), self.traces.get(key)
            self.known[name] = lower_text(text, name, self.target, trace, self.timings)
        return self.known[name]

    def join(self, keys: tuple[str, ...]) -> FusedKernel | None:
        """Return the fused kernel of several; None if it asks for more than the GPU has."""
        task = "+".join(keys)
        name = symbol(sha256(task.encode()).hexdigest())
        if name not in self.made:
            parts = tuple(map(self.lowered, keys))
            try:
                with timed(self.timings, "lower"):
                    flat = fuse_functions([g.flat for g in parts], name, self.target)
            except UnsupportedError:
                return None
            self.made[name] = LoweredFusedKernel(keys, flat, _sizes(parts, flat))
        return FusedKernel(name, task, workspace_bytes(self.made[name].flat))

    def compile(self, name: str) -> KernelCode:
        """Return the code of a fused kernel."""
        fused = self.made[name]
        code = backend(self.target).compile(fused.flat, self.target, self.timings)
        return KernelCode(code, fused.sizes, workspace_bytes(fused.flat))


@dataclass(frozen=True)
class LoweredFusedKernel:
    """A fused kernel before code is made of it; ``sizes`` are the bytes of its arguments."""

    keys: tuple[str, ...]
    flat: Func
    sizes: tuple[int, ...]


def _sizes(parts: tuple[LoweredGroup, ...], flat: Func) -> tuple[int, ...]:
    read: list[int] = []
    written: list[int] = []
    for g in parts:
        inputs, count = len(g.main.params) - g.main.outputs, len(g.main.params)
        sizes = buffer_sizes(g.main, g.flat)
        read += sizes[:inputs]
        written += sizes[inputs:count]
    work = workspace_bytes(flat)
    return (*read, *written, work) if work else (*read, *written)


def fused_kernels(
    groups: Groups, target: Target, traces: Mapping[str, Trace], timings: dict[str, float]
) -> FusedKernels | None:
    """Return what fuses the kernels of a module; None for a target without launches."""
    if target.row.work != "launches":
        return None
    found = {key: group.computation for key, group in groups.distinct.items()}
    return FusedKernels(found | dict(groups.extra), target, traces, timings)
