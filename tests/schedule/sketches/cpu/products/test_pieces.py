"""Products of f32 in bf16 pieces: where they are offered, and that all choices compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.arrays import Array
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.primitives.products.pieces import pieces_error
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.analyze import work_share
from nestwright.schedule.space.space import Choices, Sketch
from nestwright.te.from_hlo import lower_group

RAPIDS = "cpu -mcpu=sapphirerapids -threads=2"
HERE = Target.parse("cpu -threads=2")
PRODUCT = """HloModule product
ENTRY main {{
  x = f32[{m},{k}] parameter(0)
  w = f32[{w}] parameter(1)
  b = f32[{n}] parameter(2)
  d = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{along}}}
  y = f32[{m},{n}] broadcast(b), dimensions={{1}}
  ROOT r = f32[{m},{n}] add(d, y)
}}
"""
CONV = """HloModule windows
ENTRY main {
  x = f32[2,6,9,CHANNELS] parameter(0)
  w = f32[3,3,CHANNELS,37] parameter(1)
  ROOT y = f32[2,6,9,37] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f
}
"""


def text(m: int, k: int, n: int, turned: bool = False) -> str:
    weights = f"{n},{k}" if turned else f"{k},{n}"
    return PRODUCT.format(m=m, k=k, n=n, w=weights, along=int(turned))


def group(module: str, frozen: bool = True) -> Func:
    func = lower_group(parse(module).entry, "kernel")
    return FROZEN.put(func, (1,)) if frozen else func


def offered(func: Func, accuracy: str, spec: str = RAPIDS) -> Sketch | None:
    found = generate(func, Target.parse(f"{spec} -accuracy={accuracy}"))
    return next((s for s in found if s.name == "pieces@1"), None)


def drawn(module: str) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = [p.array.dims for p in parse(module).entry.parameters]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def check(func: Func, sketch: Sketch, c: Choices, given: list[Array], wanted: Array) -> None:
    """Compare a schedule on this machine: in tile registers if it has them, or else in loops."""
    sch = Schedule(func)
    sketch.apply(sch, c)
    found = compile_func(sch.func, HERE)(*given)
    error = pieces_error(int(c["pieces"])) + 2e-7
    assert np.abs(found - wanted).max() < 8 * error * np.sqrt(np.mean(np.square(wanted))), c


@pytest.mark.parametrize("shape", [(35, 66, 50), (32, 64, 48)])
def test_every_choice_computes_the_same(shape: tuple[int, int, int]) -> None:
    """With terms that are whole instructions, which are laid out another way, and with others."""
    module = text(*shape)
    func, given = group(module), drawn(module)
    sketch = offered(func, "1e-5")
    assert sketch is not None
    points = [c for c in sketch.points() if c["pieces"] == 2 or c["chunks"] < 2]
    taken = points[:: max(1, len(points) // 9)]
    assert {c["pieces"] for c in taken} == {2, 3}
    assert {c["order"] for c in taken} == {"column", "row"}
    assert {c["chunks"] for c in taken} > {1}
    wanted = np.asarray(evaluate(parse(module), given))
    for c in taken:
        check(func, sketch, c, given, wanted)


@pytest.mark.parametrize("shape", [(235, 66, 50), (233, 64, 48)])
def test_weights_that_are_arguments_are_cut_panel_by_panel(shape: tuple[int, int, int]) -> None:
    module = text(*shape)
    func, given = group(module, frozen=False), drawn(module)
    sketch = offered(func, "1e-5")
    assert sketch is not None
    points = list(sketch.points())
    assert {(c["order"], c["chunks"]) for c in points} == {("column", 1)}
    wanted = np.asarray(evaluate(parse(module), given))
    for c in points[:: max(1, len(points) // 5)]:
        check(func, sketch, c, given, wanted)


@pytest.mark.parametrize("batch", [1, 3])
def test_windows_and_batches_of_arguments(batch: int) -> None:
    unpadded = CONV.replace("CHANNELS", "32").replace(" pad=1_1x1_1", "")
    unpadded = unpadded.replace("2,6,9,37", "2,18,20,37").replace("2,6,9", "2,20,22")
    batched = f"""HloModule batches
ENTRY main {{
  x = f32[{batch},250,64] parameter(0)
  w = f32[{batch},64,48] parameter(1)
  ROOT d = f32[{batch},250,48] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""
    for module in (unpadded, batched):
        func, given = group(module, frozen=False), drawn(module)
        sketch = offered(func, "1e-5")
        assert sketch is not None
        wanted = np.asarray(evaluate(parse(module), given))
        check(func, sketch, sketch.default, given, wanted)


@pytest.mark.parametrize("channels", [4, 32])
@pytest.mark.parametrize("pieces", [2, 3])
def test_convolutions_with_padding(channels: int, pieces: int) -> None:
    module = CONV.replace("CHANNELS", str(channels))
    func, given = group(module), drawn(module)
    sketch = offered(func, "1e-5")
    assert sketch is not None
    wanted = np.asarray(evaluate(parse(module), given))
    for parallel in {c["parallel"] for c in sketch.points()}:
        c = {**sketch.default, "pieces": pieces, "parallel": parallel}
        check(func, sketch, c, given, wanted)


@pytest.mark.parametrize("terms", [30, 64])
@pytest.mark.parametrize("pieces", [2, 3])
def test_turned_weights(terms: int, pieces: int) -> None:
    module = text(33, terms, 40, turned=True)
    func, given = group(module), drawn(module)
    sketch = offered(func, "1e-5")
    assert sketch is not None
    wanted = np.asarray(evaluate(parse(module), given))
    check(func, sketch, {**sketch.default, "pieces": pieces}, given, wanted)


@pytest.mark.parametrize(
    ("accuracy", "counts"),
    [("0", set()), ("1e-9", set()), ("1e-7", {3}), ("5e-6", {3}), ("1e-5", {2, 3})],
)
def test_only_what_its_error_allows(accuracy: str, counts: set[int]) -> None:
    func = group(text(256, 512, 256))
    sketch = offered(func, accuracy)
    found = set() if sketch is None else {c["pieces"] for c in sketch.points()}
    assert found == counts
    assert {n for n in (2, 3) if pieces_error(n) <= float(accuracy)} == counts


def test_only_where_tile_registers_multiply_and_the_terms_are_in_groups() -> None:
    func = group(text(256, 512, 256))
    assert offered(func, "1e-5") is not None
    assert offered(func, "1e-5", "cpu -mcpu=znver5 -threads=2") is None
    assert offered(func, "1e-5", f"{RAPIDS} -mattr=-amx-bf16") is None
    assert offered(group(text(256, 512, 256, turned=True), frozen=False), "1e-5") is None
    assert offered(group(text(8, 512, 256)), "1e-5") is None
    assert offered(group(text(256, 511, 256)), "1e-5") is None


def test_large_products_are_in_pieces_by_default() -> None:
    func, target = group(text(256, 512, 256)), Target.parse(f"{RAPIDS} -accuracy=1e-5")
    first = generate(func, target)[0]
    assert first.name == "pieces@1" and first.default["pieces"] == 2
    sch = Schedule(func)
    first.apply(sch, first.default)
    assert pieces_error(2) <= excess_error(sch.func) <= target.accuracy


def test_the_peak_of_fmas_bounds_no_reading_of_pieces() -> None:
    """So the tuner does not refuse what is measured as faster than that."""
    func = group(text(64, 64, 64))
    sketch = offered(func, "1e-5")
    assert sketch is not None
    for pieces in (2, 3):
        sch = Schedule(func)
        sketch.apply(sch, {**sketch.default, "pieces": pieces})
        assert work_share(func, sch.func) == 0.0
    plain = next(s for s in generate(func, HERE) if s.share == 1.0)
    sch = Schedule(func)
    plain.apply(sch, plain.default)
    assert work_share(func, sch.func) == 1.0
