"""The attributes of convolutions and pools: kernel, strides, dilations, padding."""

from __future__ import annotations

from dataclasses import dataclass

from ...lax.term import Term
from ..nodes.node import Node

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A window over spatial dimensions; ``pads`` are low and high of each."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads

    @property
    def spans(self) -> tuple[int, ...]:
        """Return the sizes of the window with its gaps."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def window(node: Node, x: Term, kernel: tuple[int, ...] | None = None) -> Window:
    """Return the window of a node over the spatial dimensions of an array; ``auto_pad`` is worked
    out."""
    sizes = x.dims[2:]
    n = len(sizes)
    shape = tuple(node.ints("kernel_shape") or kernel or ())
    strides = tuple(node.ints("strides") or [1] * n)
    dilations = tuple(node.ints("dilations") or [1] * n)
    pads = node.ints("pads") or [0] * (2 * n)
    lengths = {len(shape), len(strides), len(dilations), len(pads) // 2}
    if lengths != {n} or min((*shape, *strides, *dilations), default=1) < 1:
        node.malformed(
            f"kernel {shape}, strides {strides}, dilations {dilations} and padding {pads} do not "
            f"fit {n} spatial dimensions"
        )
    found = Window(shape, strides, dilations, tuple(zip(pads[:n], pads[n:], strict=True)))
    match node.string("auto_pad", "NOTSET"):
        case "NOTSET" | "":
            return found
        case "VALID":
            same = tuple((0, 0) for _ in sizes)
        case "SAME_UPPER" | "SAME_LOWER" as mode:
            node.fixed(x, range(2, x.rank))
            same = tuple(
                _same(d, k, s, mode == "SAME_UPPER")
                for d, k, s in zip(sizes, found.spans, strides, strict=True)
            )
        case other:
            node.malformed(f"its padding is `{other}`")
    return Window(shape, strides, dilations, same)


def _same(size: int, span: int, stride: int, upper: bool) -> tuple[int, int]:
    """The padding that makes the result's size that of the input over the stride, rounded up."""
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)
