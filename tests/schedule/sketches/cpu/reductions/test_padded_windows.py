"""Windows of padded images whose rows are the lanes: the padding stays beside them, in L2."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.comparison import compare
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule

AVX512 = "cpu -mcpu=znver4 -threads=2"


def pool(
    dims: str, window: str, padding: str, *, dtype: str = "f32", op: str = "maximum", by: int = 2
) -> HloModule:
    """Return a pool of ``dims``, images, channels, height, width, with its windows."""
    n, c, *image = map(int, dims.split(","))
    sizes = [int(w) for w in window.split("x")]
    pads = [[int(p) for p in x.split("_")] for x in padding.split("x")]
    out = [(i + sum(p) - w) // by + 1 for i, w, p in zip(image, sizes, pads, strict=True)]
    low = "0" if op == "add" else "-inf" if dtype[0] in "bf" else "-100"
    result = f"{dtype}[{n},{c},{out[0]},{out[1]}]"
    return parse(f"""HloModule pool
step {{ a = {dtype}[] parameter(0)  b = {dtype}[] parameter(1)  ROOT c = {dtype}[] {op}(a, b) }}
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  z = {dtype}[] constant({low})
  ROOT r = {result} reduce-window(x, z),
    window={{size=1x1x{window} stride=1x1x{by}x{by} pad=0_0x0_0x{padding}}}, to_apply=step
}}""")


@pytest.mark.parametrize(
    ("dims", "window", "padding", "dtype", "op", "by"),
    [
        ("2,8,31,37", "3x3", "1_1x1_1", "f32", "maximum", 2),
        ("1,16,28,56", "3x3", "0_1x0_1", "f32", "maximum", 2),
        ("3,5,17,50", "3x3", "1_1x1_1", "f32", "add", 1),
        ("2,8,20,64", "2x5", "0_1x2_2", "bf16", "maximum", 1),
        ("2,9,20,71", "3x3", "1_1x1_1", "s32", "maximum", 3),
        ("1,8,21,67", "3x3", "1_0x0_1", "f64", "add", 2),
        ("4,4,20,70", "3x3", "1_1x1_1", "s8", "maximum", 2),
    ],
)
def test_results(dims: str, window: str, padding: str, dtype: str, op: str, by: int) -> None:
    module = pool(dims, window, padding, dtype=dtype, op=op, by=by)
    arguments = random_arguments(module.entry)
    want = evaluate(module, arguments)
    assert compare(0, build(module, "cpu -threads=2")(*arguments), want).ok


@pytest.mark.parametrize("by", [1, 2])
def test_padding_is_made_image_by_image(by: int) -> None:
    module = pool("8,64,56,56", "3x3", "1_1x1_1", by=by)
    nest = stage_text(module, AVX512, "scheduled").splitlines()
    padded = next(n for n, line in enumerate(nest) if 'block("pad")' in line)
    indent = min(len(x) - len(x.lstrip()) for x in nest[padded - 3 : padded] if "for " in x)
    around = [x for x in nest[:padded] if "in parallel(512)" in x]
    assert len(around) == 1 and len(around[0]) - len(around[0].lstrip()) < indent


@pytest.mark.parametrize("by", [1, 2, 3])
def test_rows_a_few_elements_apart_are_not_gathered(by: int) -> None:
    module = pool("8,64,57,57", "3x3", "0_0x0_0", by=by)
    assert "gather" not in stage_text(module, AVX512, "asm")


def test_few_images_are_padded_before() -> None:
    """Threads share the rows of one image."""
    nest = stage_text(pool("1,1,300,300", "3x3", "1_1x1_1"), AVX512, "scheduled")
    assert nest.count("in parallel(") == 2


def test_windows_of_masked_lanes_end_with_the_array() -> None:
    x = np.arange(3 * 5 * 113, dtype=np.float32).reshape(1, 3, 5, 113)
    module = pool("1,3,5,113", "1x3", "0_0x0_0")
    got = build(module, "cpu -threads=2")(x)
    np.testing.assert_array_equal(got, x[:, :, ::2, 2::2])
