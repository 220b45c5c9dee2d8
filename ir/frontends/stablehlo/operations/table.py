"""The handlers of all operations: one table over the dialects."""

from __future__ import annotations

from collections.abc import Mapping

from ....elementwise import dialect_names
from . import bits, calls, chlo, dynamic, linear, older, plain, regions
from .to_hlo import Handler, OpSite, Results

_BOTH: dict[str, Handler] = {
    **plain.TABLE,
    **linear.TABLE,
    **regions.TABLE,
    **dynamic.TABLE,
    **calls.TABLE,
    **older.TABLE,
    **bits.TABLE,
}

_MHLO_ONLY: dict[str, Handler] = {
    **dict.fromkeys((n for n in dialect_names("chlo") if n != "mulhi"), plain.elementwise),
    "copy": plain.identity,
    "topk": chlo.top_k,
}


def _refused(why: str, hint: str) -> Handler:
    def handler(site: OpSite) -> Results:
        site.refuse(why, hint)

    return handler


_QUANTIZED = _refused(
    "quantized types are not read", "quantize by arithmetic on integers and floats"
)
_SIZES = _refused(
    "shapes are not values in HLO", "export the model with the shapes of its arguments known"
)
_ASYNC = _refused("asynchronous operations are not read", "use the synchronous operation")

TABLE: Mapping[str, Handler] = {
    **{f"{d}.{name}": h for d in ("stablehlo", "mhlo") for name, h in _BOTH.items()},
    **{f"mhlo.{name}": h for name, h in _MHLO_ONLY.items()},
    **{f"chlo.{name}": h for name, h in chlo.TABLE.items()},
    **{
        f"{d}.{name}": _QUANTIZED
        for d in ("stablehlo", "mhlo")
        for name in ("uniform_quantize", "uniform_dequantize")
    },
    **dict.fromkeys(
        ("shape.shape_of", "shape.num_elements", "shape.broadcast", "tensor.dim"), _SIZES
    ),
    **{f"stablehlo.async_{n}": _ASYNC for n in ("start", "done")},
    **{f"mhlo.async_{n}": _ASYNC for n in ("start", "update", "done")},
    "chlo.ragged_dot": linear.ragged_dot,
    "mhlo.ragged_dot": linear.ragged_dot,
    "arith.constant": plain.constant,
    "tensor.cast": plain.identity,
    "func.call": regions.call,
    "call": regions.call,
    "sdy.constant": plain.constant,
    "sdy.manual_computation": regions.manual_computation,
    "sdy.named_computation": regions.manual_computation,
    **dict.fromkeys(
        (
            "sdy.sharding_constraint",
            "sdy.reshard",
            "sdy.data_flow_edge",
            "sdy.propagation_barrier",
        ),
        plain.identity,
    ),
}
"""By the operation's full name."""
