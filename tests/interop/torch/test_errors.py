"""Values over which torch raises an error: a compiled call hands them to torch, which does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")
scan = pytest.importorskip("torch._higher_order_ops.scan", reason="an older torch").scan

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces


class Rows(torch.nn.Module):  # type: ignore[misc]
    """A weight that is compiled in, rows of it, and whole numbers divided by others."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5, 2)

    def forward(self, words: Any, places: Any, divisors: Any) -> Any:
        rows = self.words(words)
        return rows[places] * 2, places // divisors, rows.gather(0, places[:, None] % 3)


@torch.no_grad()
def test_places_beyond_arrays_and_divisions_by_zero_are_errors() -> None:
    model = Rows()
    fast = torch.compile(model, backend="nestwright")
    good = torch.tensor([0, 4, 2]), torch.tensor([-3, 2]), torch.tensor([1, -2])
    bad = [
        ((torch.tensor([0, 5, 2]), *good[1:]), IndexError, "index out of range in self"),
        ((good[0], torch.tensor([-4, 2]), good[2]), IndexError, "index -4 is out of bounds"),
        ((*good[:2], torch.tensor([1, 0])), RuntimeError, "ZeroDivisionError"),
    ]
    torch.testing.assert_close(fast(*good), model(*good))
    for given, kind, told in bad:
        with pytest.raises(kind, match=told):
            fast(*given)
    model.words.weight.mul_(2)  # compiled again
    torch.testing.assert_close(fast(*good), model(*good))
    with pytest.raises(IndexError):
        fast(*bad[0][0])


class Walks(torch.nn.Module):  # type: ignore[misc]
    """Rows of a table that a scan, and a loop in a branch, read one after the other."""

    def forward(self, table: Any, order: Any, choice: Any) -> Any:
        def row(table: Any, order: Any, step: Any) -> Any:
            return table.index_select(0, order.gather(0, step[None]))[0]

        def more(step: Any, total: Any) -> Any:
            return (row(table, order, step).sum() < 100) & (step < 2)

        def add(step: Any, total: Any) -> Any:
            return step + 1, total + row(table, order, step)

        def walked(table: Any, order: Any) -> Any:
            start = torch.zeros((), dtype=torch.int64), torch.zeros(2)
            return torch.while_loop(more, add, start)[1]

        found = torch.cond(choice, walked, lambda table, order: table.sum(0), (table, order))
        last, rows = scan(
            lambda total, place: (total + table.index_select(0, place[None])[0], total * 2),
            torch.zeros(2),
            order[:2],
        )
        return found, last, rows


@torch.no_grad()
def test_bodies_of_loops_and_branches_are_checked() -> None:
    model = Walks()
    fast = torch.compile(model, backend="nestwright", fullgraph=True)
    table, yes, no = torch.arange(6.0).reshape(3, 2), torch.tensor(True), torch.tensor(False)
    for order in ([2, 0, 1], [0, 1, 3]):  # the condition alone reads the last one
        given = table, torch.tensor(order), no
        torch.testing.assert_close(fast(*given), model(*given))
    given = table, torch.tensor([2, 0, 1]), yes
    torch.testing.assert_close(fast(*given), model(*given))
    for order, choice in (([0, 1, 3], yes), ([0, 3, 0], no)):
        with pytest.raises(IndexError, match="index out of range"):
            fast(table, torch.tensor(order), choice)
