"""XLA's own texts with collectives: the graph passes do not change what any device gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestwright.ir.comparison import leaves
from nestwright.ir.hlo.analysis.inputs import draw_all, draws
from nestwright.ir.hlo.interp.devices import evaluate_devices
from nestwright.ir.hlo.layouts import entry_orders
from nestwright.ir.hlo.ops.collectives import devices
from nestwright.ir.hlo.ops.registry import definition
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse

FOLDER = Path(__file__).parents[4].parent / "shared" / "corpus" / "xla_hlo"
PATHS = sorted(FOLDER.glob("*__import_emit_stablehlo__*.hlo"))
PATHS += sorted(FOLDER.glob("*__import_async__*.hlo"))
FEWEST = 20  # with collectives between devices


@pytest.mark.corpus
def test_texts_of_xla() -> None:
    if not PATHS:
        pytest.skip("the corpus is not beside this checkout")
    seen = 0
    for path in PATHS:
        model = parse(path.read_text(), path.name)
        count = devices(model).count
        opcodes = {i.opcode for c in model.computations for i in c.instructions}
        whole = {o.removesuffix("-start") for o in opcodes}
        if count == 1 or not any(definition(o).collective for o in whole):
            continue
        if "ragged-all-to-all" in opcodes:
            continue
        orders = entry_orders(model)
        args = [draw_all(draws(model.entry), seed) for seed in range(count)]
        if any(orders.params) or any(orders.results):
            continue  # its arguments would have to be transposed
        before, after = evaluate_devices(model, args), evaluate_devices(optimize(model), args)
        for a, b in zip(leaves(before), leaves(after), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=path.name)
        seen += 1
    assert seen >= FEWEST
