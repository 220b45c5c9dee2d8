"""Benchmark sweeps: the runs, and their results as data. The names are loaded on first use."""

from typing import TYPE_CHECKING

from ...ir.lazy import loader

if TYPE_CHECKING:
    from .data import BenchReport as BenchReport
    from .data import read_report as read_report
    from .sweep import bench as bench

__getattr__ = loader(
    __name__,
    {
        "BenchReport": ".data:BenchReport",
        "bench": ".sweep:bench",
        "read_report": ".data:read_report",
    },
)
