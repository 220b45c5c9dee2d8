"""Exported programs whose sizes depend on values, beside torch; needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.frontends.load import imported
from nestwright.ir.hlo.interp.evaluate import evaluate

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*degrees of freedom"
)

F = torch.nn.functional


class Of(torch.nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def masks(n: int) -> list[Any]:
    """None, all, and some."""
    torch.manual_seed(n)
    return [torch.zeros(n, dtype=torch.bool), torch.ones(n, dtype=torch.bool), torch.rand(n) > 0.5]


def equal(found: Any, wanted: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves
    ours, theirs = leaves(found), leaves(wanted)
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"result {k}")


def compare(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], native: bool = False
) -> None:
    """Compare with eager mode: interpreted, and compiled if ``native`` is set."""
    model = imported(Of(function), calls[-1])
    exe = nw.lower(Of(function), *calls[-1]).compile() if native else None
    for given in calls:
        with np.errstate(all="ignore"):
            flat = evaluate(model.module, [*(t.numpy() for t in given), *model.weights.values()])
        assert model.rebuild is not None
        wanted = function(*given)
        equal(model.rebuild(flat if isinstance(flat, tuple) else (flat,)), wanted)
        if exe is not None:
            equal(exe(*given), wanted)


def with_masks(x: Any) -> list[tuple[Any, ...]]:
    return [(x, m) for m in masks(x.shape[0])]


def experts(hidden: Any, mask: Any) -> Any:
    """Each expert on its tokens only, as loops over experts do it."""
    found = torch.zeros_like(hidden)
    for chosen in torch.stack([mask, ~mask]).unsqueeze(1):
        slot, token = torch.where(chosen)
        rows = hidden[None, token].reshape(-1, hidden.shape[-1])
        made = F.silu(rows @ hidden[:4].T) * (slot[:, None] + 1)
        found.index_add_(0, token, made)
    return found


def test_experts_on_their_tokens() -> None:
    compare(experts, with_masks(torch.randn(6, 4)), native=True)


def detected(boxes: Any, scores: Any) -> Any:
    """The boxes of good scores that no better one overlaps, best first."""
    boxes, scores = boxes[scores > 0.5], scores[scores > 0.5]
    order = scores.argsort(descending=True)
    boxes, scores = boxes[order], scores[order]
    corner = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    size = (torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - corner).clamp(min=0)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    shared = size[..., 0] * size[..., 1]
    overlap = shared / (area[:, None] + area[None] - shared)
    kept = (overlap.triu(1) < 0.5).all(0)
    return boxes[kept], scores[kept], boxes.shape[0]


def test_boxes_that_are_left() -> None:
    torch.manual_seed(3)
    boxes = torch.rand(9, 4).cumsum(1)
    calls = [(boxes, torch.rand(9) * most) for most in (0.4, 1, 2)]
    compare(detected, calls)


def test_losses_of_chosen_rows() -> None:
    kinds = torch.tensor([0, 1, 2, 3, 0, -100])
    weight = torch.tensor([1.0, 2, 3, 4])

    def lost(x: Any, mask: Any) -> Any:
        rows, of = x[mask], kinds[mask]
        return (
            F.cross_entropy(rows, of),
            F.cross_entropy(rows, of, weight, reduction="sum", label_smoothing=0.1),
            F.cross_entropy(rows, of, weight, label_smoothing=0.1),
            F.nll_loss(rows.log_softmax(1), of, reduction="none"),
            F.mse_loss(rows, rows * 2),
            F.binary_cross_entropy_with_logits(rows, rows.sigmoid()),
        )

    compare(lost, with_masks(torch.randn(6, 4)))


def test_losses_of_all_forms_of_targets() -> None:
    x, whole = torch.randn(5, 4), torch.randn(2, 3, 4, 4)
    kinds = torch.randint(0, 3, (2, 4, 4))

    def lost(x: Any, whole: Any) -> Any:
        spread = x.softmax(1)
        return (
            F.cross_entropy(x, spread),
            F.cross_entropy(x, spread, reduction="none", label_smoothing=0.2),
            F.cross_entropy(x, spread, x[0].exp(), reduction="sum"),
            F.cross_entropy(x[0], torch.tensor(1)),
            F.cross_entropy(x[0], spread[0]),
            F.cross_entropy(whole, kinds, torch.ones(3) * 0.5, ignore_index=1),
            F.cross_entropy(whole, whole.softmax(1)),
            F.nll_loss(whole, kinds, torch.arange(3.0)),
        )

    compare(lost, [(x, whole)])


def test_statistics_count_what_there_is() -> None:
    def counted(x: Any, mask: Any) -> Any:
        rows = x[mask]
        n = rows.shape[0]
        return (
            (
                rows.mean(),
                rows.mean(0),
                rows.std(0),
                rows.var(),
                rows.sum() / n,
                rows.sum() / (n + 1),
            ),
            (rows.softmax(0), torch.layer_norm(rows, (4,)), rows.norm(), rows.median()),
            (rows.sort(0), rows.argsort(1), rows.cumsum(0), rows.argmax(1), rows.flip(0)),
            (rows @ rows.T, rows.T @ rows, torch.einsum("nd,nd->d", rows, rows)),
            (n, rows.numel(), (rows > 0).sum(), (rows > 0).all(), (rows > 0).any(0)),
        )

    compare(counted, with_masks(torch.randn(6, 4)))


def test_shapes_with_open_sizes() -> None:
    def shaped(x: Any, mask: Any) -> Any:
        rows = x[mask]
        n, both = rows.shape[0], torch.cat([x[mask], x, x[mask]])
        twice = torch.cat([rows, rows])
        return (
            (rows.view(-1), rows.view(-1, 2), rows.unsqueeze(1).expand(-1, 3, 4), rows.T),
            (twice.view(2, -1, 4), twice.view(-1, 2, 4), rows.T.reshape(2, -1), both),
            (torch.arange(n), torch.arange(n, 8), torch.zeros(n, 2), rows.new_full((n + 1,), 3)),
            (torch.eye(n), x[:1].expand(n, 4), rows.repeat(2, 1), F.pad(rows, (1, 0, 1, 2))),
            (rows[:3], rows[:-1], rows[-2:], rows[::2], both[-1], rows.split(2, 1)),
            (rows[:, None] - x[None], torch.stack([rows, rows], 1), rows[rows[:, 0] > 0]),
        )

    compare(shaped, with_masks(torch.randn(6, 4)))
    compare(lambda x, m: (x[m], x[m] + x[:1], torch.nonzero(m)), with_masks(torch.randn(1, 3)))


def test_places_that_are_read_and_written() -> None:
    def moved(x: Any, mask: Any) -> Any:
        place, rows = torch.where(mask)[0], x[mask]
        wide = place[:, None].expand(-1, 4)
        y = x.clone()
        y[mask] = rows * 2
        y[mask, 0] = 3.0
        y[:, mask[:4]] += 1
        zeros = torch.zeros(6, 4)
        return (
            (y, zeros.scatter(0, wide, rows), zeros.scatter_add(0, wide, rows), x[place, 1]),
            zeros.scatter_reduce(0, wide, rows, "amax", include_self=False),
            (rows.gather(1, rows.argsort(1)), rows.index_add(1, torch.tensor([1]), rows[:, :1])),
            (zeros.index_copy(0, place, rows), F.one_hot(place, 6), F.embedding(place, x)),
            (x.masked_select(mask[:, None] & (x > 0)), torch.isin(torch.arange(6), place)),
            rows.index_add(1, torch.tensor([0]), (x * 2)[mask][:, :1]),
        )

    compare(moved, with_masks(torch.randn(6, 4)))


def test_distinct_and_repeated_elements() -> None:
    def listed(x: Any) -> Any:
        pair = x.view(3, 2)
        return (
            torch.unique(x, return_inverse=True, return_counts=True),
            torch.unique(pair, dim=0, return_counts=True),
            torch.unique_consecutive(x, return_inverse=True),
        )

    def repeated(x: Any) -> Any:
        found = torch.repeat_interleave(torch.arange(12).view(6, 2), x, dim=0)
        torch._check(found.shape[0] <= 20)
        counts = torch.bincount(x)
        torch._check(counts.shape[0] <= 4)
        return found, found.sum(0), counts

    calls = [(torch.tensor(v),) for v in ([0] * 6, [3, 1, 1, 0, 3, 1], [1, 2, 2, 2, 2, 3])]
    compare(listed, calls)
    compare(repeated, calls)


def test_numbers_that_are_read_off_arrays() -> None:
    def cut(x: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= 6)
        return x[:k], x[k:], x[:k].mean(0), torch.full((k, 2), 1.5), x * k, torch.arange(k)

    x = torch.randn(6, 4)
    compare(cut, [(x, torch.tensor(n)) for n in (0, 6, 4)])
    compare(lambda x, n: x * n.item(), [(x, torch.tensor(n)) for n in (-1.5, 2.0)])


def test_sizes_in_arithmetic() -> None:
    def counted(x: Any, mask: Any) -> Any:
        rows = x[mask]
        n = rows.shape[0]
        best = rows[:, 0].topk(torch.sym_min(3, n))
        half = torch.sym_int(n * 0.5)
        return best, rows[:half], rows * torch.sym_sqrt(n + 1), x * mask.any().item(), n * 0.25

    compare(counted, with_masks(torch.randn(6, 4)))


def test_branches_may_depend_on_a_size() -> None:
    def chosen(x: Any, mask: Any) -> Any:
        return torch.cond(x[mask].shape[0] > 2, lambda v: v + 1, lambda v: v - 1, (x,))

    compare(chosen, with_masks(torch.randn(6, 4)))


@pytest.mark.parametrize(
    "kind", ["float16", "bfloat16", "float64", "int32", "uint8", "bool", "complex64"]
)
def test_element_types(kind: str) -> None:
    dtype = getattr(torch, kind)

    def mixed(x: Any, mask: Any) -> Any:
        rows = x.to(dtype)[mask]
        found = [torch.cat([rows, rows]), rows.view(-1), rows.flip(0), rows[rows != 0]]
        found += [rows.mean(), rows @ rows.T] if dtype.is_floating_point else [rows.sum(0)]
        return [t.to(torch.complex64 if dtype.is_complex else torch.float32) for t in found]

    compare(mixed, with_masks(torch.randint(0, 5, (5, 3)).float()))


def _refused(function: Callable[..., Any], *args: Any) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as told:
        nw.lower(Of(function), *args)
    return told.value


def test_what_does_not_take_open_sizes_is_refused() -> None:
    x, mask = torch.randn(6, 4), torch.ones(6, dtype=torch.bool)
    for function in (lambda x, m: x[m].logcumsumexp(0), lambda x, m: torch.fft.fft(x[m], dim=1)):
        error = _refused(function, x, mask)
        reasons = {f.reason for f in error.findings}
        assert "it is not compiled for shapes that depend on values" in reasons
        assert "before the model (" in error.hint
    error = _refused(lambda x, r: torch.repeat_interleave(x, r, dim=0), x, torch.arange(6))
    assert "has no bound" in str(error) and "torch._check" in str(error)
    error = _refused(lambda n: torch.ones(n.item()), torch.tensor(3))
    assert "has no bound" in str(error)


def test_a_bound_that_is_told_makes_arrays_smaller() -> None:
    def few(x: Any, mask: Any) -> Any:
        rows = x[mask]
        torch._check(rows.shape[0] <= 3)
        return rows.sum(0), rows * 2

    x, mask = torch.randn(8, 4), torch.tensor([0, 1, 0, 0, 1, 0, 0, 0]).bool()
    compare(few, [(x, torch.zeros(8, dtype=torch.bool)), (x, mask)])
    results = imported(Of(few), (x, mask)).module.entry.root.operands
    assert [r.array.dims for r in results] == [(4,), (3, 4)]


def test_saved_programs_may_have_open_sizes(tmp_path: Path) -> None:
    def kept(x: Any, mask: Any) -> Any:
        rows = x[mask]
        return torch.cat([rows, rows]).view(-1, 2), rows[:2], rows.mean(0)

    calls: Iterable[Any] = with_masks(torch.randn(6, 4))
    x, mask = list(calls)[-1]
    path = tmp_path / "kept.pt2"
    torch.export.save(torch.export.export(Of(kept), (x, mask)), path)
    exe = nw.build(path)
    for given in calls:
        equal(list(exe(*given)), list(kept(*given)))
