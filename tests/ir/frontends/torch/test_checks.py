"""Exported models that are built with checks: values over which torch raises are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, DivisionError, LibraryError, PlaceError
from nestwright.ir.library.call import FAILED, LibraryCall
from nestwright.ir.library.checks import failed

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces

GOOD = torch.tensor([0, 4, 2]), torch.tensor([-3, 2]), torch.tensor([1, -2])
BEYOND = torch.tensor([0, 5, 2]), *GOOD[1:]


class Rows(torch.nn.Module):  # type: ignore[misc]
    """Rows of a weight, rows of these, and whole numbers divided by others."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5, 2)

    def forward(self, words: Any, places: Any, divisors: Any) -> Any:
        rows = self.words(words)
        return rows[places] * 2, places // divisors


def test_what_torch_refuses_is_an_error_that_names_the_operator(tmp_path: Path) -> None:
    model = Rows()
    exe = nw.lower(model, *GOOD, checks=True).compile()
    exe.save(tmp_path / "rows.nw")
    loaded = nw.load(tmp_path / "rows.nw")
    for run in (exe, loaded):
        for found, want in zip(run(*GOOD), model(*GOOD), strict=True):
            np.testing.assert_array_equal(found, want.detach())
        with pytest.raises(PlaceError, match=r"aten\.embedding.*not in range\(0, 5\)"):
            run(*BEYOND)
        with pytest.raises(IndexError, match=r"test_checks\.py:\d+: aten\.index\.Tensor"):
            run(GOOD[0], torch.tensor([-4, 2]), GOOD[2])
        with pytest.raises(DivisionError, match=r"aten\.floor_divide"):
            run(*GOOD[:2], torch.tensor([1, 0]))
    nw.build(torch.export.export(model, GOOD))(*BEYOND)  # without, a place is moved


class Walks(torch.nn.Module):  # type: ignore[misc]
    """Rows of a table that a loop in a branch reads one after the other."""

    def forward(self, table: Any, order: Any, choice: Any) -> Any:
        def add(step: Any, total: Any) -> Any:
            return step + 1, total + table.index_select(0, order.gather(0, step[None]))[0]

        def walked(table: Any, order: Any) -> Any:
            start = torch.zeros((), dtype=torch.int64), torch.zeros(2)
            return torch.while_loop(lambda step, total: step < 3, add, start)[1]

        return torch.cond(choice, walked, lambda table, order: table.sum(0), (table, order))


def test_loops_and_branches_are_checked_where_they_run() -> None:
    table, order = torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0, 1])
    exe = nw.lower(Walks(), table, order, torch.tensor(True), checks=True).compile()
    beyond = torch.tensor([0, 1, 3])
    for given in (order, beyond):
        np.testing.assert_array_equal(exe(table, given, torch.tensor(False)), [6, 9])
    np.testing.assert_array_equal(exe(table, order, torch.tensor(True)), [6, 9])
    with pytest.raises(PlaceError, match=r"aten\.index_select\.default: .* range\(0, 3\)"):
        exe(table, beyond, torch.tensor(True))


def test_models_without_checks_are_refused() -> None:
    module = nw.parse("HloModule m\nENTRY main { ROOT x = f32[2] parameter(0) }")
    with pytest.raises(ArgumentError, match="checks=True for m"):
        nw.build(module, checks=True)
    with pytest.raises(ArgumentError, match="padding would be checked"):
        nw.build(module, checks=True, shapes={"x": (range(1, 9),)}, rule="buckets")


@pytest.mark.parametrize("text", ["", "{}", '["place"]', '["other", "a", "b", "c"]'])
def test_a_damaged_text_is_an_error_of_its_own(text: str) -> None:
    with pytest.raises(LibraryError, match="says no error"):
        failed(LibraryCall("custom-call", FAILED, (), (), backend_config=text))
