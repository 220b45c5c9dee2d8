"""Modules, exported programs and saved ones; needs torch."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, ParseError, UnsupportedError
from nestwright.ir.frontends.load import imported, load

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Net(torch.nn.Module):  # type: ignore[misc]
    """A linear layer, batch norm, and a buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Any, *, twice: Any = None) -> Any:
        self.calls.add_(1)
        return {"y": self.norm(self.linear(x)), "pair": (x * 2, self.calls + 1, 3)}


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def test_a_module_gives_its_tree_and_its_changed_buffers(net: Any) -> None:
    x = torch.randn(2, 4)
    model = imported(net, (x,))
    assert model.inputs == ("x", "calls")
    assert model.outputs[-1] == "calls"
    exe = nw.build(net, example=(x,))
    assert model.rebuild is not None
    made, changed = model.rebuild(exe(x.numpy(), np.full(3, 4, np.float32)))
    want = net(x)
    np.testing.assert_allclose(made["y"], want["y"].detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(made["pair"][1], np.full(3, 6, np.float32))
    assert made["pair"][2] == 3
    np.testing.assert_array_equal(changed["calls"], np.full(3, 5, np.float32))


class Nested(torch.nn.Module):  # type: ignore[misc]
    """A call with containers, keywords and numbers in it and in what it gives."""

    def forward(self, xs: Any, *, mask: Any = None, times: int = 2) -> Any:
        y = xs[0] * times + xs[1]["b"]
        return {"y": y if mask is None else y * mask, "rest": [y + 1, (None, times)]}


def test_an_executable_is_called_as_the_module() -> None:
    x, b, mask = torch.randn(2, 3), torch.randn(3), torch.rand(2, 3)
    exe = nw.lower(Nested(), (x, {"b": b}), {"mask": mask, "times": 3}).compile()
    own = exe((x, {"b": b}), times=3, mask=mask)
    want = Nested()((x, {"b": b}), mask=mask, times=3)
    for found in (own, exe(x, b, mask), exe(x.numpy(), b.numpy(), mask=mask.numpy())):
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-6)
        np.testing.assert_allclose(found["rest"][0], want["rest"][0], rtol=1e-6)
        assert found["rest"][1] == (None, 3)
    assert len(exe.flat(x, b, mask)) == 2
    for given in ((x, {"c": b}), [x, {"b": b}], (x,)):
        with pytest.raises(ArgumentError, match="those it was lowered for"):
            exe(given, times=3, mask=mask)
    with pytest.raises(ArgumentError, match="unknown keyword 'times'"):
        exe((x, {"b": b}), times=4, mask=mask)


def test_changed_buffers_are_inputs_of_the_executable(net: Any) -> None:
    x = torch.randn(2, 4)
    exe = nw.lower(net, x).compile()
    made, changed = exe(x, np.full(3, 4, np.float32))
    assert made["pair"][2] == 3
    np.testing.assert_array_equal(changed["calls"], np.full(3, 5, np.float32))
    np.testing.assert_array_equal(exe(x=x, calls=changed["calls"])[1]["calls"], np.full(3, 6))


def test_weights_are_views_of_the_module() -> None:
    linear = torch.nn.Linear(4, 3)
    model = imported(linear, (np.zeros((2, 4), np.float32),))
    held = next(w for w in model.weights.values() if w.ndim == 2)
    with torch.no_grad():
        linear.weight[0, 0] = 7
    assert held[0, 0] == 7


def test_bfloat16_weights_are_read() -> None:
    linear = torch.nn.Linear(4, 3).bfloat16()
    x = torch.randn(2, 4).bfloat16()
    found = nw.build(linear, example=(x,))(x.view(torch.int16).numpy().view("bfloat16"))
    want = linear(x).float().detach().numpy()
    np.testing.assert_allclose(found.astype(np.float32), want, rtol=2e-2, atol=2e-2)


def test_keyword_arguments_are_a_last_dict(net: Any) -> None:
    model = imported(net, (torch.zeros(2, 4), {"twice": None}))
    assert model.inputs[0] == "x"


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, a: Any, b: Any) -> Any:
        return a + 2 * b + 10 * self.weight


def test_an_example_that_is_given_twice_stands_for_two_inputs() -> None:
    net, x, y = Weighted(), torch.ones(3), torch.full((3,), 5.0)
    for given in ((x, x), (net.weight, x), (x, net.weight)):
        exe = nw.lower(net, *given).compile()
        np.testing.assert_array_equal(exe(x, y), net(x, y).detach())
        np.testing.assert_array_equal(exe(y, x), net(y, x).detach())


class Pair(NamedTuple):
    first: Any
    second: Any


class OfPair(torch.nn.Module):
    def forward(self, pair: Pair) -> Any:
        return pair.first - pair.second


def test_named_tuples_are_arguments() -> None:
    x, y = torch.ones(2), torch.zeros(2)
    exe = nw.lower(OfPair(), Pair(x, x)).compile()
    np.testing.assert_array_equal(exe(Pair(x, y)), [1, 1])


def test_a_module_needs_arguments(net: Any) -> None:
    with pytest.raises(ArgumentError, match="no example arguments"):
        nw.build(net)


def test_a_module_that_depends_on_values_is_refused() -> None:
    class Branch(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ArgumentError, match="torch cannot export Branch") as e:
        imported(Branch(), (torch.ones(3),))
    assert "\n" not in e.value.why


def test_refused_operators_are_named() -> None:
    class Noise(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + torch.rand(3)

    with pytest.raises(UnsupportedError, match=r"aten.rand.default.*generator"):
        imported(Noise(), (torch.ones(3),))


def test_operators_between_effects_are_named() -> None:
    class Root(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            torch.ops.aten._print("told")
            return torch.linalg.cholesky(x)

    with pytest.raises(UnsupportedError, match=r"aten\._print\.default") as told:
        imported(Root(), (torch.eye(3),))
    assert [f.opcode for f in told.value.findings] == ["aten._print.default"]


def saved(path: Path, module: Any, *args: Any) -> Path:
    torch.export.save(torch.export.export(module, args), path)
    return path


def test_a_saved_program_is_read(tmp_path: Path) -> None:
    linear, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    path = saved(tmp_path / "m.pt2", linear, x)
    found = nw.build(path)(x.numpy())
    np.testing.assert_allclose(found, linear(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def rewritten(path: Path, name: str, change: Any) -> Path:
    """Write a copy of an archive with one part changed."""
    other = path.with_name("hostile.pt2")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for item in source.namelist():
            data = source.read(item)
            target.writestr(item, change(data) if item.endswith(name) else data)
    return other


def test_a_program_that_calls_python_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.ReLU(), torch.zeros(3))
    hostile = rewritten(
        path, "model.json", lambda d: d.replace(b"torch.ops.aten.relu.default", b"torch.os.system")
    )
    with pytest.raises(UnsupportedError, match=r"torch\.os\.system"):
        load(hostile)


def test_pickled_example_inputs_are_never_read(tmp_path: Path) -> None:
    import pickle

    path = saved(tmp_path / "m.pt2", torch.nn.ReLU(), torch.zeros(3))
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (marker,))

    buffer = io.BytesIO()
    torch.save(Evil(), buffer)
    for data in (buffer.getvalue(), pickle.dumps(Evil())):
        with pytest.raises(UnsupportedError, match="pickle"):
            load(rewritten(path, "sample_inputs/model.pt", lambda _, d=data: d))
    assert not marker.exists()


class Touch:
    """What touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


def pickled(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Touch(marker), buffer)
    return buffer.getvalue()


def test_an_older_program_hidden_beside_one_is_never_unpickled(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.ReLU(), torch.zeros(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("version", b"8.8")
        archive.writestr("serialized_exported_program.json", archive.read("m/models/model.json"))
        for part in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{part}.pt", pickled(tmp_path / "executed"))
    with pytest.raises(UnsupportedError, match="outside of its folder"):
        load(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("hidden", ["other/data/{}", "m/data/{}", "m/DATA/{}"])
def test_weights_under_a_second_name_are_never_unpickled(tmp_path: Path, hidden: str) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.Linear(4, 3), torch.zeros(2, 4))
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings(action="ignore"):
        name = "weights/model_weights_config.json"
        archive.writestr(hidden.format(name), archive.read(f"m/data/{name}"))
    with pytest.raises(UnsupportedError, match=r"outside of its folder|two files of one name"):
        load(path)


def test_compressed_archives_are_not_unpacked(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.ReLU(), torch.zeros(3))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data/sample_inputs/other.pt", bytes(1 << 24))
    with pytest.raises(UnsupportedError, match="files are compressed"):
        load(path)


def test_a_missing_weight_is_one_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.Linear(4, 3), torch.zeros(2, 4))
    other = path.with_name("less.pt2")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for item in source.namelist():
            if not item.endswith("weight_0"):
                target.writestr(item, source.read(item))
    with pytest.raises(ParseError, match="weight_0"):
        load(other)
    assert not [r for r in caplog.records if r.levelname != "DEBUG"]


class Kept(torch.nn.Module):  # type: ignore[misc]
    """The elements above 0: as many as values decide."""

    def forward(self, x: Any) -> Any:
        return x[x > 0]


@pytest.mark.parametrize(
    "text",
    [
        "Pow(Integer(9), Integer(9))",
        "Symbol('u0', integer=True).name",
        "Symbol('n', integer=True)",
        "__import__('os')",
    ],
)
def test_only_arithmetic_of_sizes_is_evaluated(tmp_path: Path, text: str) -> None:
    path = saved(tmp_path / "m.pt2", Kept(), torch.ones(3))
    assert load(path).module.entry.root.array.dynamic == (True,)
    symbol = b"Symbol('u0', integer=True)"
    hostile = rewritten(path, "model.json", lambda d: d.replace(symbol, text.encode()))
    with pytest.raises(UnsupportedError, match="symbolic size"):
        load(hostile)


CALL = "open('executed', 'w')"
"""Code that leaves a trace in the working directory."""


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('"guards_code": []', f'"guards_code": ["{CALL} != 0"]'),
        ('"guards_code": []', '"guards_code": ["(1 ** 9) > 0"]'),
        ('"forward_arg_names": ["x", "y"]', f'"forward_arg_names": ["x", "y={CALL}"]'),
        (r"[\\\"y\\\"]", r"[\\\"y()\\\"]"),
        ('"name": "x"', f'"name": "x={CALL}"'),
        ('"as_bool": true', '"as_operator": "torch.os.system"'),
        ("buffer_name", f'b": "{CALL}", "buffer_name'),
    ],
)
def test_texts_that_could_be_code_are_refused(
    tmp_path: Path, text: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch writes code with the names and the guards of a program, and runs it."""
    monkeypatch.chdir(tmp_path)
    x = torch.ones(2)
    program = torch.export.export(Scaled(), (x,), {"y": x})
    torch.export.save(program, tmp_path / "m.pt2")
    assert load(tmp_path / "m.pt2").inputs == ("x", "y")
    changed: list[bool] = []

    def change(data: bytes) -> bytes:
        found = data.replace(text.encode(), other.encode())
        changed.append(found != data)
        return found

    hostile = rewritten(tmp_path / "m.pt2", "model.json", change)
    assert changed == [True]
    with pytest.raises(UnsupportedError):
        load(hostile)
    assert not (tmp_path / "executed").exists()


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """Has a buffer, an argument by keyword, and an operator with a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x: Any, *, y: Any) -> Any:
        return (x * self.scale + y).sum(0, keepdim=True)


@pytest.mark.parametrize(
    ("slopes", "dims"), [(1, (3,)), (1, (2, 3, 4)), (3, (2, 3)), (3, (2, 3, 4))]
)
def test_slopes_of_channels(slopes: int, dims: tuple[int, ...]) -> None:
    module = torch.nn.PReLU(slopes)
    with torch.no_grad():
        module.weight.copy_(torch.linspace(-0.5, 0.75, slopes))
        x = torch.linspace(-3, 3, math.prod(dims)).reshape(dims)
        np.testing.assert_allclose(nw.lower(module, x).compile()(x.numpy()), module(x), rtol=1e-6)


@pytest.mark.parametrize("keep", [0.2, 0.7, 0.99])
def test_a_damaged_archive_is_one_message(tmp_path: Path, keep: float) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.Linear(4, 3), torch.zeros(2, 4))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises((ParseError, UnsupportedError), match="cannot read"):
        load(path)


def test_a_graph_of_nonsense_is_one_message(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt2", torch.nn.ReLU(), torch.zeros(3))
    with pytest.raises(ParseError, match="cannot read the exported program"):
        load(rewritten(path, "model.json", lambda _: json.dumps({"graph_module": 3}).encode()))


def test_control_flow_is_compiled() -> None:
    class Loop(torch.nn.Module):  # type: ignore[misc]
        def forward(self, n: Any, x: Any) -> Any:
            def more(k: Any, y: Any) -> Any:
                return k < 4

            def step(k: Any, y: Any) -> Any:
                return k + 1, y * 2 + x

            y = torch.while_loop(more, step, (n, torch.zeros_like(x)))[1]
            return torch.cond(y.sum() > 0, lambda v: v + 1, lambda v: v - 1, (y,))

    x = torch.arange(3, dtype=torch.float32) - 1.5
    n = torch.tensor(0)
    found = nw.build(Loop(), example=(n, x))(n.numpy(), x.numpy())
    np.testing.assert_allclose(found, Loop()(n, x).numpy(), rtol=1e-6)


def test_only_the_branch_that_is_taken_runs() -> None:
    class Either(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda v: v @ v, lambda v: v - 1, (x,))

    x = torch.ones(2, 2)
    entry = imported(Either(), (x,)).module.entry
    assert not [i for i in entry.instructions if i.opcode == "dot"]
    exe = nw.build(Either(), example=(x,))
    for given in (x, -x):
        np.testing.assert_array_equal(exe(given), Either()(given))


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # of torch's own layers
def test_recurrent_layers_are_loops() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 4)
    lstm = torch.nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
    gru = torch.nn.GRU(4, 6, bias=False)
    for layer in (lstm, gru):
        model = imported(layer, (x,))
        loops = [i for i in model.module.entry.instructions if i.opcode == "while"]
        assert len(loops) == (4 if layer is lstm else 1)
        found = nw.build(layer, example=(x,))(x.numpy())
        out, last = layer(x)
        want = [out, *(last if isinstance(last, tuple) else (last,))]
        for ours, theirs in zip(found, want, strict=True):
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_weights_of_another_type_are_refused_with_the_operator() -> None:
    with pytest.raises(UnsupportedError, match=r"aten\.linear\.default: its operands are of types"):
        nw.lower(torch.nn.Linear(4, 3).double(), torch.ones(2, 4))


def test_what_is_no_module_is_told_what_to_give() -> None:
    for model, hint in ((Net, "instance"), (torch.nn.Linear(4, 3).forward, "the module itself")):
        with pytest.raises(UnsupportedError) as caught:
            nw.lower(model, torch.ones(2, 4))
        assert hint in caught.value.hint
    with pytest.raises(UnsupportedError, match="example arguments are torch tensors"):
        nw.lower(lambda x: x + 1, torch.ones(2, 4))
