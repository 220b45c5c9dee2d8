"""Barriers with phases in LLVM IR, for the modules of kernels whose threads wait at them.

The text stands in a kernel's module and not in the runtime, which most kernels need nothing more
of; the runtime finds it by ``structs.HOOKS``.
"""

from __future__ import annotations

import re

from ...emit.expr import Emitter
from ...emit.llvm.template import render
from ...runtime.sim.structs import NAMES

HOOKS = "@nw_phase_hooks"
_SEEN = re.compile(r"^define (?!internal)", re.MULTILINE)  # by other kernels of a model
_OURS = re.compile(r"@(?!nw_|llvm\.|realloc\b|free\b)(\w+)")


def phases_text(em: Emitter, checked: bool, products: bool, tensors: bool = False) -> str:
    """Return the functions ``nw_phase_...`` and ``nw_box_...``, ``nw_group_...`` for products, and
    ``nw_tensor_...`` for those with sums in tensor memory.

    What they call is declared in the module.
    """
    for name, (result, *kinds) in _CALLED.items():
        em.declare(name, result, kinds)
    names = {
        "checked": str(checked).lower(),
        "open": _calls("open_products()" * products, "open_tensor()" * tensors),
        "begin": _calls("begin_products()" * products, "begin_tensor()" * tensors),
        "end": _calls("end_tensor()" * tensors),
        "synced": _calls("tensor_synced(i64 %t)" * tensors),
        "met": _calls("tensor_met(i64 %first, i64 %last)" * tensors),
    }
    order = render(__package__, "order.ll", [NAMES], names)
    files = (*_PARTS, *_PRODUCTS * products, *_TENSORS * tensors)
    parts = [order, *(render(__package__, file, [NAMES]) for file in files)]
    text = _OURS.sub(r"@nw_phase.\1", "\n".join(parts))
    return _SEEN.sub("define internal ", text)


def _calls(*names: str) -> str:
    """Return calls of those functions that are there."""
    return "\n  ".join(f"call void @{name}" for name in names if name)


_PARTS = ("phases.ll", "flights.ll", "boxes.ll")
_PRODUCTS = ("groups.ll", "operands.ll")
_TENSORS = ("tensor.ll",)


_CALLED = {
    "nw_sim_core": ("ptr",),
    "nw_sim_report": ("ptr",),
    "nw_sim_draw": ("i64",),
    "nw_sim_turn_to": ("void", "i64"),
    "nw_sim_group": ("i64",),
    "nw_sim_land": ("void", "i64"),
    "nw_sim_commit_async": ("void",),
    "nw_sim_access": ("i1", "ptr", "ptr", "i64", "i64"),
    "nw_sim_mark": ("void", "ptr", "ptr", "i64", "i32"),
    "nw_sim_tell": ("void", "i64", "ptr", "ptr"),
    "nw_scratch": ("ptr", "i64"),
    "realloc": ("ptr", "ptr", "i64"),
    "free": ("void", "ptr"),
    "llvm.umax.v8i32": ("<8 x i32>", "<8 x i32>", "<8 x i32>"),
    "llvm.umin.v8i32": ("<8 x i32>", "<8 x i32>", "<8 x i32>"),
    "llvm.umax.i64": ("i64", "i64", "i64"),
    "llvm.umax.i32": ("i32", "i32", "i32"),
    "llvm.memset.p0.i64": ("void", "ptr", "i8", "i64", "i1"),
    "llvm.memcpy.p0.p0.i64": ("void", "ptr", "ptr", "i64", "i1"),
    "llvm.memmove.p0.p0.i64": ("void", "ptr", "ptr", "i64", "i1"),
}
"""The types of results and operands of what the text calls."""
