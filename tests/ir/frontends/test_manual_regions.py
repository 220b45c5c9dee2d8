"""Programs for all devices whose work stands in one region: what each device runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestwright.ir.errors import UnsupportedError
from nestwright.ir.frontends.load import load_model, read_model
from nestwright.ir.frontends.manual_regions import of_one_device
from nestwright.ir.hlo.analysis.support import require_supported
from nestwright.ir.hlo.interp.devices import evaluate_devices
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.ops.collectives import devices
from nestwright.ir.hlo.shardings import tiles

DATA = Path(__file__).parents[2] / "codegen" / "runtime" / "collectives" / "data"


def parts(module: HloModule, whole: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The arguments of each device."""
    params = module.entry.parameters
    rows = [(a, tiles(p), p.array.dims) for a, p in zip(whole, params, strict=True)]
    count = devices(module).count
    return [[a if t is None else t.part(a, d, n) for a, t, d in rows] for n in range(count)]


@pytest.mark.parametrize("name", ["whole_2.hlo", "whole_4.hlo", "whole_2.mlir", "whole_4.mlir"])
def test_the_text_from_before_partitioning_runs_on_each_device(name: str) -> None:
    model, one = load_model(DATA / name), load_model(DATA / "step_1.hlo")
    draw = np.random.default_rng(0)
    whole = [draw.normal(size=p.array.dims).astype("f4") for p in one.entry.parameters]
    wanted = evaluate(one, whole)
    for found in evaluate_devices(model, parts(model, whole)):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


GSPMD = """HloModule m, entry_computation_layout={(f32[8,3]{1,0}, f32[4,8]{1,0})->f32[4,3]{1,0}}
add { a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT s = f32[] add(a, b) }
body { w = f32[4,3] parameter(0)
x = f32[2,4] parameter(1)
d = f32[2,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT r = f32[2,3] all-reduce(d), channel_id=1, replica_groups={{0,1},{2,3}}, GLOBAL to_apply=add }
ENTRY e { w = f32[8,3] parameter(0)
v = f32[8,3] custom-call(w), custom_call_target="Sharding", sharding={W}
p = f32[4,3] custom-call(v), custom_call_target="SPMDFullToShardShape", sharding={manual}
x = f32[4,8] parameter(1)
y = f32[4,8] custom-call(x), custom_call_target="Sharding", sharding={devices=[2,2]<=[4]}
q = f32[2,4] custom-call(y), custom_call_target="SPMDFullToShardShape", sharding={manual}
c = f32[2,3] call(p, q), to_apply=body
ROOT r = f32[4,3] custom-call(c), custom_call_target="SPMDShardToFullShape", sharding={O} }
""".replace("GLOBAL", "use_global_device_ids=true,")
GSPMD = GSPMD.replace("{W}", "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
GSPMD = GSPMD.replace("{O}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}")


def test_calls_of_the_older_partitioner() -> None:
    model = read_model(GSPMD.encode(), "m.hlo")
    w, x = np.arange(24, dtype="f4").reshape(8, 3), np.arange(32, dtype="f4").reshape(4, 8)
    for rank, found in enumerate(evaluate_devices(model, parts(model, [w, x]))):
        np.testing.assert_array_equal(found, np.split(x @ w, 2)[rank // 2])


PART = 'custom-call(OF), custom_call_target="SPMDFullToShardShape"'
WHOLE = 'g = f32[4] custom-call(n), custom_call_target="SPMDShardToFullShape"\n'


@pytest.mark.parametrize(
    ("of", "rest"),
    [
        ("x", WHOLE + "ROOT r = f32[4] add(g, x)"),
        ("x", WHOLE + "ROOT r = f32[4] negate(g)"),
        ("x", WHOLE + "ROOT t = (f32[4], f32[4]) tuple(g, x)"),
        ("z", WHOLE.replace("g =", "ROOT g =")),
    ],
    ids=["parameter", "result", "returned", "computed"],
)
def test_what_works_on_whole_arrays_is_refused(of: str, rest: str) -> None:
    text = "HloModule m\nENTRY e { x = f32[4] parameter(0)\nz = f32[4] negate(x)\n"
    text += f"p = f32[2] {PART.replace('OF', of)}\nn = f32[2] negate(p)\n{rest} }}"
    model = read_model(text.encode(), "m.hlo")
    assert of_one_device(model) is model
    with pytest.raises(UnsupportedError, match="would change its operand") as caught:
        require_supported(model)
    assert "compile().as_text()" in str(caught.value)
