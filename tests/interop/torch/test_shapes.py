"""Open sizes: what is kept compiled, and what is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakSet

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

from nestwright.interop.torch import backend, shapes  # noqa: E402 (torch is known by now)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces

ROW = 100  # bytes that a row of the graph below is said to take


class Doubled:
    """A graph that doubles an array, and the rows for which it was compiled, in order."""

    def __init__(self, most: int) -> None:
        self.made: list[int] = []
        self.run = shapes.PerShape(torch.fx.symbolic_trace(lambda x: x * 2), self._make, most)

    def _make(self, _: Any, args: Any) -> shapes.CompiledGraph:
        rows = len(args[0])
        self.made.append(rows)
        return shapes.CompiledGraph(lambda x: x.new_full((rows,), 2), lambda: rows * ROW)

    def __call__(self, rows: int) -> None:
        assert len(self.run(torch.ones(rows))) == rows


def test_the_sizes_that_were_called_last_stay_compiled() -> None:
    double = Doubled(most=2)
    for rows in (1, 2, 1, 3, 1, 2, 3):
        double(rows)
    assert double.made == [1, 2, 3, 2, 3]


def test_sizes_that_take_much_memory_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MEMORY", 6 * ROW)
    double = Doubled(most=9)
    for rows in (1, 2, 3, 7, 3, 2, 1, 8, 3, 7):  # 7 goes, so that there is room for 8
        double(rows)
    assert double.made == [1, 2, 3, 7, 8, 7]


def test_threads_forget_for_each_other() -> None:
    double = Doubled(most=2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(double, [1, 2, 3, 4, 5] * 20))


@torch.no_grad()
def test_code_that_is_forgotten_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: WeakSet[Any] = WeakSet()

    class Watched(backend.CompiledCluster):
        def _compiled(self, weights: Any) -> Any:
            alive.add(found := super()._compiled(weights))
            return found

    monkeypatch.setattr(backend, "CompiledCluster", Watched)
    layer = torch.nn.Linear(3, 2)
    fast = torch.compile(layer, backend="nestwright", dynamic=True, options={"sizes": 1})
    for rows in (2, 3, 4):
        x = torch.ones(rows, 3)
        torch.testing.assert_close(fast(x), layer(x))
    assert len(alive) == 1
