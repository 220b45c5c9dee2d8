"""``torch.compile(backend="nestwright")`` beside eager: values, memory, writes, gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import nestwright as nw
from nestwright.ir.errors import NestwrightWarning, UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces


def compiled(model: Any, **options: Any) -> Any:
    from nestwright.interop.torch.backend import nestwright

    return torch.compile(model, backend=nestwright, options=options)


def same(model: Any, *args: Any, **options: Any) -> Any:
    """Run a model in eager mode and compiled; the results must be equal, and are returned."""
    want = model(*args)
    found = compiled(model, **options)(*args)
    torch.testing.assert_close(found, want)
    return found


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(7, 9)
        self.norm = torch.nn.LayerNorm(9)
        self.two = torch.nn.Linear(9, 3)

    def forward(self, x: Any) -> Any:
        return self.two(torch.nn.functional.gelu(self.norm(self.one(x))))


@torch.no_grad()
def test_every_setting_reaches_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestwright.interop.torch import cluster

    given: dict[str, Any] = {}

    class Lowered:
        def tune(self, **options: Any) -> Any:
            given.update(tuned=options)
            return SimpleNamespace(log="tuned.jsonl")

        def compile(self, log: str) -> None:
            raise UnsupportedError("a model", f"that is built with {log}")

    def lower(module: Any, **options: Any) -> Lowered:
        given.update(options)
        return Lowered()

    monkeypatch.setattr(cluster, "lower", lower)
    options = {"target": "cpu -threads=1", "weights": "int8", "accuracy": 1e-4}
    options |= {"denormals": "flush", "excess_precision": False}
    with pytest.warns(NestwrightWarning, match=r"that is built with tuned\.jsonl"):
        compiled(Net(), log="x.jsonl", tune=3, **options)(torch.ones(2, 7))
    assert given.pop("tuned") == {"trials": 3, "log": "x.jsonl"}
    assert len(given.pop("constants")) == 6 and given == options


@torch.no_grad()
def test_a_module_is_one_cluster_of_frozen_weights() -> None:
    net, x = Net().eval(), torch.randn(5, 7)
    before = nw.counters()
    fast = compiled(net)
    for _ in range(3):
        torch.testing.assert_close(fast(x), net(x))
    assert nw.counters().shapes == before.shapes + 1


@torch.no_grad()
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 1, 1), (17, 3)])
def test_odd_extents(shape: tuple[int, ...]) -> None:
    same(lambda x: torch.tanh(x * 2) + x, torch.randn(shape))


@torch.no_grad()
@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"]
)
def test_element_types(dtype: str) -> None:
    x = torch.randint(0, 2, (3, 5)).to(getattr(torch, dtype))
    found = same(lambda x: (torch.where(x > 0, x, x), x == x), x)
    assert found[0].dtype == x.dtype


@torch.no_grad()
def test_strided_views_come_in() -> None:
    x = torch.randn(6, 8)
    double = compiled(lambda x: x * 2 + 1)
    for view in (x.t(), x[::2, 1::3], x[1:, 2:], x.flip(0), x[0].expand(4, 8)):
        torch.testing.assert_close(double(view), view * 2 + 1)


@torch.no_grad()
def test_conjugated_and_negated_views_come_in() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    same(lambda x: x * 2 + x, x.conj())
    same(lambda x: x * 2 + x, x.conj().imag)


@torch.no_grad()
def test_weights_that_are_written_are_seen() -> None:
    net, x = Net().eval(), torch.randn(5, 7)
    fast = compiled(net)
    fast(x)
    net.one.weight.mul_(2)  # the optimizer's way
    torch.testing.assert_close(fast(x), net(x))
    net.two.bias.data = torch.randn(3)  # other memory
    torch.testing.assert_close(fast(x), net(x))
    net.load_state_dict(Net().state_dict())
    torch.testing.assert_close(fast(x), net(x))
    built = nw.counters().shapes
    net.one.weight.mul_(2)
    torch.testing.assert_close(fast(x), net(x))
    assert nw.counters().shapes == built, "weights that keep changing are passed, not compiled in"


@torch.no_grad()
def test_one_code_serves_layers_of_one_shape() -> None:
    layers = [Net().eval() for _ in range(3)]
    x = torch.randn(5, 7)
    fast = [compiled(layer) for layer in layers]
    for _ in range(2):
        for quick, layer in zip(fast, layers, strict=True):
            torch.testing.assert_close(quick(x), layer(x))


@torch.no_grad()
def test_written_inputs_and_buffers_are_written_back() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            y = torch.exp(x) + self.seen
            self.seen.add_(x.sum(0))
            x[1:].mul_(3)
            return y * self.seen

    plain = Counting()
    fast = compiled(copy.deepcopy(plain))
    for _ in range(3):
        x = torch.randn(4, 3)
        x_again = x.clone()
        torch.testing.assert_close(fast(x_again), plain(x))
        torch.testing.assert_close(x_again, x)
        torch.testing.assert_close(fast.seen, plain.seen)


def test_a_write_waits_for_all_before_it_by_way_of_the_last_write() -> None:
    from nestwright.interop.torch.partition import orders

    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"w{i}") for i in range(50)]
    made = [graph.call_function(torch.ops.aten.mul.Tensor, (w, 2)) for w in inputs]
    pairs = zip(inputs, made, strict=True)
    written = [graph.call_function(torch.ops.aten.copy_.default, pair) for pair in pairs]
    before = orders([*made, *written], {}, ())
    reached: list[set[int]] = []
    for read in before:
        reached.append(read.union(*(reached[i] for i in read)))
    assert all(reached[i] == set(range(i)) for i in range(len(made), len(before)))
    assert sum(map(len, before)) < 4 * len(before)  # not the square


@torch.no_grad()
def test_results_that_share_memory_share_it() -> None:
    def views(x: Any) -> Any:
        y = torch.tanh(x) * 2
        return y, y.t(), y[1], x.view(-1), x

    x = torch.randn(3, 4)
    y, turned, row, flat, whole = same(views, x)
    y.fill_(7)
    assert bool((turned == 7).all()) and bool((row == 7).all())
    assert flat.data_ptr() == x.data_ptr() and whole is x
    assert turned.stride() == (1, 4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(7, 11), (3, 2), (10, 6)])
def test_interpolations_stay_whole_without_gradients(mode: str, size: tuple[int, int]) -> None:
    def resized(x: Any) -> Any:
        return torch.nn.functional.interpolate(x, size, mode=mode) * 2

    with torch.no_grad():
        same(resized, torch.randn(2, 3, 5, 3))
        (graph,) = nw.explain(resized, torch.randn(2, 3, 5, 3)).graphs
        assert (graph.operators, graph.clusters) == (2, 1)
    x, y = (torch.ones(2, 3, 5, 3, requires_grad=True) for _ in range(2))
    resized(x).sum().backward()
    compiled(resized)(y).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)


@torch.no_grad()
def test_rows_of_operators_that_this_torch_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestwright.ir.frontends.torch.operators.layers import resampling

    newer = {**resampling.ROWS, "aten.of_a_newer_torch.default": None}
    monkeypatch.setattr(resampling, "ROWS", newer)
    same(torch.relu, torch.randn(3, 4))


@torch.no_grad()
def test_what_has_no_row_stays_outside() -> None:
    def middle(x: Any) -> Any:
        y = torch.relu(x) * 2
        z = torch.nonzero(y.flatten() > 0).shape[0]
        return y + z

    same(middle, torch.randn(4, 5))


def test_types_that_hlo_lacks_stay_outside() -> None:
    def halves(x: Any) -> Any:
        return torch.view_as_real((x * 2).chalf()).float() * 3 + 1

    x = torch.randn(4, requires_grad=True)
    torch.autograd.grad(same(halves, x).sum(), x)


@pytest.mark.filterwarnings("ignore")
def test_graphs_of_nested_tensors_are_torchs() -> None:
    def made(values: Any, ends: Any) -> Any:
        return (torch.nested.nested_tensor_from_jagged(values, ends).sin() * 2).values()

    ends = torch.tensor([0, 2, 5])
    for values in (torch.randn(5, 4), torch.randn(5, 4, requires_grad=True)):
        same(made, values, ends)
    nested = torch.nested.nested_tensor_from_jagged(torch.randn(5, 4), ends)
    got = torch.compile(lambda x: x.sin() * 2, backend="nestwright")(nested)
    assert torch.equal(got.values(), nested.values().sin() * 2)
    (graph,) = nw.explain(made, torch.randn(5, 4), ends).graphs
    assert graph.clusters == 0 and graph.left[0].reason == "nested tensors are not compiled"


@torch.no_grad()
def test_random_numbers_are_torchs_own_in_their_order() -> None:
    def noisy(x: Any) -> Any:
        a = torch.rand_like(x) * x + 1
        b = torch.randn_like(x) + x.exp() * 2
        return a.sin() + b, torch.nn.functional.dropout(a * b, 0.5)

    x, fast = torch.randn(6, 5), compiled(noisy)
    for seed in range(3):
        torch.manual_seed(seed)
        want = noisy(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(fast(x), want)


@torch.no_grad()
def test_new_shapes_are_compiled_each() -> None:
    net = Net().eval()
    fast = compiled(net)
    for rows in (2, 5, 3, 5, 2, 8):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(fast(x), net(x))


def test_marked_dimensions_are_compiled_for_each_size() -> None:
    net = Net()
    fast = compiled(net)
    for rows in (4, 6, 4):
        x = torch.randn(rows, 7)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(fast(x), net(x))


def test_threads_compile_for_their_own_shapes() -> None:
    net = Net().eval()
    fast = compiled(net)

    def run(rows: int) -> None:
        for _ in range(10):
            x = torch.randn(rows, 7)
            torch.testing.assert_close(fast(x), net(x))

    with torch.no_grad(), ThreadPoolExecutor(4) as pool:
        list(pool.map(torch.no_grad()(run), (2, 3, 4, 5)))


@torch.no_grad()
def test_numbers_are_open_where_shapes_are() -> None:
    from nestwright.interop.torch.backend import nestwright
    from nestwright.interop.torch.shapes import NUMBERS

    norm = torch.nn.LayerNorm(7).eval()  # dynamo takes its epsilon for an input

    def scaled(x: Any, by: float) -> Any:
        return norm(x) * by + by

    fast = torch.compile(scaled, backend=nestwright, dynamic=True)
    for number in range(NUMBERS + 2):  # the last are run by torch
        x, by = torch.randn(5, 7), number / 2
        torch.testing.assert_close(fast(x, by), scaled(x, by))


@pytest.mark.parametrize(
    "make",
    [
        Net,
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
        ),
        lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True),
    ],
)
def test_training_steps_are_those_of_eager(make: Callable[[], Any]) -> None:
    plain = make()
    other = copy.deepcopy(plain)
    fast = compiled(other)
    for _ in range(2):
        found = [_step(m, plain) for m in (fast, plain)]
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
    for a, b in zip(other.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def _step(run: Any, kind: Any) -> Any:
    torch.manual_seed(1)
    match kind:
        case Net():
            result = run(torch.randn(5, 7))
        case torch.nn.Sequential():
            result = run(torch.randn(3, 2, 6, 6))
        case _:
            x = torch.randn(2, 5, 8)
            result = run(x, x, x, need_weights=False)[0]
    optimizer = torch.optim.SGD(run.parameters(), 0.1)
    optimizer.zero_grad()
    result.square().mean().backward()
    grads = [p.grad.clone() for p in run.parameters()]
    optimizer.step()
    return grads


def test_gradients_of_inputs() -> None:
    x = torch.randn(4, 6, requires_grad=True)
    y = torch.randn(6, 3, requires_grad=True)

    def f(x: Any, y: Any) -> Any:
        return torch.log_softmax(x @ y, -1)[:, 1].sum()

    want = torch.autograd.grad(f(x, y), (x, y))
    torch.testing.assert_close(torch.autograd.grad(compiled(f)(x, y), (x, y)), want)


def test_gradients_of_solutions_and_determinants() -> None:
    def found(a: Any, b: Any) -> Any:
        turned = a.mT * 1  # in column-major order
        return torch.linalg.solve(a, b).sum() + torch.linalg.slogdet(turned)[1]

    pair = []
    for run in (found, compiled(found)):
        torch.manual_seed(0)
        a = (torch.randn(4, 4) + 3 * torch.eye(4)).requires_grad_()
        b = torch.randn(4, 2, requires_grad=True)
        run(a, b).backward()
        pair.append((a.grad, b.grad))
    torch.testing.assert_close(pair[1], pair[0])


@torch.no_grad()
def test_options_reach_the_build() -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(128, 128)).eval(), torch.randn(4, 128)
    loose = compiled(net, weights="bf16")(x)
    assert not torch.equal(loose, net(x))
    torch.testing.assert_close(loose, net(x), rtol=0.05, atol=0.05)
    with pytest.raises(Exception, match="did you mean 'weights'"):
        compiled(net, weight="bf16")(x)


def test_entry_point_is_found() -> None:
    from torch._dynamo import list_backends

    assert "nestwright" in list_backends()


class Cached(torch.nn.Module):
    """Rows written to a cache, which is read after."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 8, 3))

    def forward(self, x: Any, place: Any) -> Any:
        self.cache.index_copy_(1, place, x.tanh() + 1)
        return (self.cache * 2).sum(1).exp()


@torch.no_grad()
def test_caches_are_written_where_they_lie() -> None:
    plain = Cached()
    fast = copy.deepcopy(plain)
    run, memory = compiled(fast), fast.cache.data_ptr()
    for place in ([0], [3], [7]):
        x = torch.randn(2, 1, 3)
        torch.testing.assert_close(run(x, torch.tensor(place)), plain(x, torch.tensor(place)))
        torch.testing.assert_close(fast.cache, plain.cache)
    assert fast.cache.data_ptr() == memory
    (graph,) = nw.explain(plain, x, torch.tensor([5])).graphs
    assert [row.operator for row in graph.left] == ["aten.index_put_.default"]


@torch.no_grad()
def test_a_cache_that_is_read_before_is_copied() -> None:
    def f(cache: Any, x: Any) -> Any:
        before = cache.exp().sum() * 2
        cache[1] = x * before
        return cache.sum() + before

    caches = torch.randn(2, 3, 4)
    want, found = caches[0].clone(), caches[0].clone()
    x = torch.randn(4)
    torch.testing.assert_close(compiled(f)(found, x), f(want, x))
    torch.testing.assert_close(found, want)


@torch.no_grad()
def test_tensors_marked_as_static_are_no_weights() -> None:
    fast = compiled(lambda x, cache: (x * 2 + cache).tanh())
    built = nw.counters().shapes
    for _ in range(3):
        x, cache = torch.randn(3), torch.randn(3)
        torch._dynamo.mark_static_address(cache)
        torch.testing.assert_close(fast(x, cache), (x * 2 + cache).tanh())
    assert nw.counters().shapes <= built + 2, "torch compiles anew for another static tensor"


@torch.no_grad()
def test_buffers_are_weights() -> None:
    net, x = torch.nn.BatchNorm1d(4).eval(), torch.randn(3, 4)
    fast = compiled(net)
    fast(x)
    built = nw.counters().shapes
    net.running_mean.add_(1)
    torch.testing.assert_close(fast(x), net(x))
    assert nw.counters().shapes == built + 1, "a buffer was not compiled in"


def test_a_constant_that_the_model_makes_is_compiled() -> None:
    def scaled(x: Any) -> Any:
        return x * torch.tensor(8.0) + torch.tensor([1.0, 2, 3])

    same(scaled, torch.randn(3))
    same(scaled, torch.randn(3, requires_grad=True))


@pytest.mark.parametrize("biases", [True, False])
@torch.no_grad()
@torch._dynamo.config.patch(allow_rnn=True)
def test_an_lstm_that_torch_hands_to_onednn_is_one_cluster(biases: bool) -> None:
    layers = torch.nn.LSTM(5, 7, 2, bias=biases, batch_first=True, bidirectional=True).eval()
    x, start = torch.randn(3, 4, 5), (torch.randn(4, 3, 7), torch.randn(4, 3, 7))
    same(layers, x, start)
    assert "in 1 cluster" in str(nw.explain(layers, x, start))


GRIDS = [("bilinear", "zeros"), ("nearest", "reflection"), ("bicubic", "border")]


@pytest.mark.parametrize(("mode", "padding"), GRIDS)
@pytest.mark.parametrize("corners", [False, True])
@torch.no_grad()
def test_places_in_images(mode: str, padding: str, corners: bool) -> None:
    """Some lie outside of the image."""

    def read(x: Any, places: Any) -> Any:
        return torch.nn.functional.grid_sample(x, places, mode, padding, corners)

    x, places = torch.randn(2, 5, 7, 9), torch.rand(2, 6, 4, 2) * 3 - 1.5
    same(read, x, places)
    assert "left to torch" not in str(nw.explain(read, x, places))


@pytest.mark.parametrize("size", [(5, 13), (14, 18), (7, 9)])
@pytest.mark.parametrize("corners", [False, True])
@torch.no_grad()
def test_cubic_interpolation(size: tuple[int, int], corners: bool) -> None:
    def resize(x: Any) -> Any:
        return torch.nn.functional.interpolate(x, size, mode="bicubic", align_corners=corners)

    same(resize, torch.randn(2, 3, 7, 9))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@torch.no_grad()
def test_bags_of_any_length(mode: str) -> None:
    """The first bag, one between and the last one are empty."""

    def sums(table: Any, rows: Any, starts: Any) -> Any:
        return torch.nn.functional.embedding_bag(rows, table, starts, mode=mode)

    starts = torch.tensor([0, 0, 3, 7, 7, 11])
    same(sums, torch.randn(30, 4), torch.randint(0, 30, (11,)), starts)


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 1), (3, 2, 2)])
@torch.no_grad()
def test_blocks_are_added_up(stride: int, padding: int, dilation: int) -> None:
    def fold(x: Any) -> Any:
        return torch.nn.functional.fold(x, (9, 7), (2, 3), dilation, padding, stride)

    def count(size: int, kernel: int) -> int:
        return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    same(fold, torch.randn(2, 5 * 6, count(9, 2) * count(7, 3)))


@torch.no_grad()
def test_operators_on_lists_are_compiled() -> None:
    def step(xs: list[Any], ys: list[Any]) -> Any:
        torch._foreach_mul_(xs, 0.9)
        torch._foreach_addcdiv_(xs, ys, ys, [0.5, -2.0])
        torch._foreach_addcmul_(xs, ys, ys, value=-0.1)
        norms = torch._foreach_norm(xs, 1)
        return torch._foreach_sub(xs, ys, alpha=2), norms, torch._foreach_maximum(xs, 0.25)

    lists = [[torch.rand(3, 4), torch.rand(5)] for _ in range(2)]
    pair = [copy.deepcopy(lists) for _ in range(2)]
    want, found = step(*pair[0]), compiled(step)(*pair[1])
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(pair[1], pair[0])
    (graph,) = nw.explain(step, *lists).graphs
    assert {left.operator for left in graph.left} == {"aten.copy_.default"}
