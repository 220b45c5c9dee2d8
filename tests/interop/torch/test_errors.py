"""Values over which torch raises an error: a compiled call hands them to torch, which does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

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
