"""Tensors in another memory order, such as ``channels_last``: read and given as they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces


def run(function: Callable[..., Any], *args: Any) -> Any:
    from nestwright.interop.torch.backend import nestwright

    return torch.compile(function, backend=nestwright)(*args)


@pytest.mark.parametrize("grad", [False, True])
def test_views_of_a_result_share_its_memory_and_order(grad: bool) -> None:
    conv = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)

    def model(x: Any) -> Any:
        y = conv(x).relu()
        return y, y.permute(0, 2, 3, 1).view(-1), y[:, 1:]

    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    with torch.set_grad_enabled(grad):
        found, wanted = run(model, x), model(x)
    torch.testing.assert_close(found, wanted)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]
    assert found[1].data_ptr() == found[0].data_ptr()


@pytest.mark.parametrize("grad", [False, True])
def test_parts_share_the_memory_of_what_is_divided(grad: bool) -> None:
    def model(x: Any) -> Any:
        y = torch.sin(x) * 2
        return *x.unbind(0), y, *y.split(2)

    x = torch.randn(2, 4, requires_grad=grad)
    first, second, y, whole = run(model, x)
    assert [first.data_ptr(), second.data_ptr()] == [row.data_ptr() for row in x]
    assert whole.data_ptr() == y.data_ptr()
    torch.testing.assert_close((first, second, y, whole), model(x))


@pytest.mark.parametrize(
    "dims, order",
    [
        ((3, 4), (1, 0)),
        ((2, 3, 4), (1, 2, 0)),
        ((2, 1, 4), (2, 1, 0)),
        ((1, 1), (1, 0)),
        ((0, 3), (1, 0)),
        ((5,), (0,)),
        ((), ()),
    ],
)
def test_a_tensor_is_read_in_the_order_it_lies_in(dims: Any, order: Any) -> None:
    from nestwright.interop.torch.layouts import order_of

    lies = torch.randn([dims[k] for k in order])
    x = lies.permute([order.index(k) for k in range(len(order))])
    assert x.permute(order_of(x)).is_contiguous()
    found = run(lambda t: t * 2 + 1, x)
    assert torch.equal(found, x * 2 + 1) and found.stride() == (x * 2 + 1).stride()


def test_a_tensor_with_gaps_is_read_in_the_plain_order() -> None:
    from nestwright.interop.torch.layouts import order_of

    x = torch.randn(4, 6)[:, ::2].t()
    assert order_of(x) == (0, 1)
    assert torch.equal(run(lambda t: t + 1, x), x + 1)


def test_large_results_keep_their_order() -> None:
    x = torch.randn(300, 500).t()
    found = run(lambda t: t.exp(), x)
    torch.testing.assert_close(found, x.exp())
    assert found.stride() == x.stride()


def test_views_by_places_in_memory() -> None:
    """Of a tensor in another order, and of slices, beyond which they reach."""

    def model(x: Any) -> Any:
        y = x * 2
        return (
            y.t()[1:].as_strided((3, 2), (7, 1), 1) * 3,
            y[:, :5].as_strided((24,), (1,), 0).sin(),
            y[1:, 1:].as_strided((2, 2), (6, 1)) - 1,
        )

    x = torch.randn(4, 6)
    with torch.no_grad():
        torch.testing.assert_close(run(model, x), model(x))


def test_what_is_kept_for_the_backward_graph_lies_as_it_is_computed() -> None:
    """Convolutions compute images with their channels last; torch's own lie in planes."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)
    )
    x = torch.randn(2, 3, 9, 9)
    kept: list[Any] = []

    def keep(t: Any) -> Any:
        kept.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        found = run(model, x)
    images = [t for t in kept if t.dim() == 4 and t.shape[0] == 2 and t.shape[1] == 8]
    assert images and all(t.stride(1) == 1 for t in images)
    assert found.is_contiguous()
    found.square().sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    model[1].reset_running_stats()
    model(x).square().sum().backward()
    torch.testing.assert_close(gradients, [p.grad for p in model.parameters()])


def test_parts_that_are_kept_for_the_backward_graph_have_no_gaps() -> None:
    """Queries, keys and values of one product: with gaps, the backward graph would copy them."""
    kept: list[Any] = []

    def keep(t: Any) -> Any:
        kept.append(t)
        return t

    def model(x: Any, w: Any) -> Any:
        q, k, v = (x @ w).view(2, 4, 3, 8).unbind(2)
        return (q * k).exp() * v

    x, w = torch.randn(2, 4, 5), torch.randn(5, 24, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        found = run(model, x, w)
    parts = [t for t in kept if t.shape == (2, 4, 8)]
    assert parts and all(t.is_contiguous() for t in parts)
    (gradient,) = torch.autograd.grad(found.sum(), w)
    torch.testing.assert_close(gradient, torch.autograd.grad(model(x, w).sum(), w)[0])
