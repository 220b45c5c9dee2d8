"""How much a page shows: less of it, step by step, until the page is small enough."""

from __future__ import annotations

from dataclasses import dataclass

MOST_BYTES = 2_000_000  # of a page


@dataclass(frozen=True, slots=True)
class Detail:
    """The parts of each cell that are shown; the others are among the data of the page.

    ``groups`` is how many tuned groups, the heaviest first (None: all); with ``nests`` their loop
    nests are compared, too. With ``repeated`` cells of one model have a graph and a timeline each,
    else the first of them.
    """

    groups: int | None = None
    nests: bool = True
    repeated: bool = True

    @property
    def left_out(self) -> str:
        """The parts that a reader misses, in words; "" if there are none."""
        parts = []
        if not self.repeated:
            parts.append("graphs and timelines of a model's further cells")
        if not self.nests:
            parts.append("differences of loop nests")
        if self.groups is not None:
            kept = f"all but the {self.groups} heaviest tuned kernels" if self.groups else "tuning"
            parts.append(f"{kept} of each cell")
        return "; ".join(parts)


LEVELS = (
    Detail(),
    Detail(repeated=False),
    *(Detail(n, repeated=False) for n in (16, 8, 4)),
    *(Detail(n, nests=False, repeated=False) for n in (4, 2, 1, 0)),
)
"""The details of a page, in the order in which they are tried."""
