"""Peers on small models, each where it is installed; what they cannot run is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestwright.autotune.bench.peers.table import Given, ways_of
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.lazy import resolve

PRODUCTS = """HloModule p
ENTRY main {
  x = f32[3,5,4] parameter(0)
  y = f32[3,4,7] parameter(1)
  b = f32[7] parameter(2)
  d = f32[3,5,7] dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  w = f32[3,5,7] broadcast(b), dimensions={2}
  s = f32[3,5,7] add(d, w)
  t = f32[7,3,5] transpose(s), dimensions={2,0,1}
  c = f32[] constant(2)
  v = f32[7] multiply(b, b)
  ROOT r = (f32[7,3,5], f32[7], f32[]) tuple(t, v, c)
}
"""
PLAIN = """HloModule p
ENTRY main {
  x = f32[5,4] parameter(0)
  y = f32[7,4] parameter(1)
  ROOT d = f32[5,7] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
SUMMED = """HloModule s
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[5,4] parameter(0)
  z = f32[] constant(0)
  ROOT d = f32[5] reduce(x, z), dimensions={1}, to_apply=add
}
"""


def opened(peer: str, text: str, folder: Path):
    module, place = parse(text), folder / "m.hlo"
    place.write_text(text)
    arguments = random_arguments(module.entry, 0)
    given = Given(place, {f"a{n}": a for n, a in enumerate(arguments)}, 1)
    way = ways_of([peer])[0]
    return resolve(way.open, "nestwright.autotune.bench.peers")(given), evaluate(module, arguments)


@pytest.mark.parametrize("peer", ["numpy", "jax"])
@pytest.mark.parametrize("text", [PRODUCTS, PLAIN], ids=["batched", "plain"])
def test_peers_compute_the_module(peer: str, text: str, tmp_path: Path) -> None:
    pytest.importorskip(peer)
    model, wanted = opened(peer, text, tmp_path)
    found = model.arrays(model.call())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert [a.dtype for a in found] == [b.dtype for b in wanted]
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and np.allclose(a, b, atol=1e-5)
    assert peer in model.detail.lower()


def test_numpy_refuses_what_it_has_no_call_for(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="`d`: reduce"):
        opened("numpy", SUMMED, tmp_path)


@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_peers_run_onnx_files(peer: str, tmp_path: Path) -> None:
    pytest.importorskip(peer)
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    a, b, c = (helper.make_tensor_value_info(n, kind, ["n", 6]) for n in "abc")
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["c"])], "g", [a, b], [c])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    given = Given(tmp_path / "m.onnx", {"a": x, "b": x * x}, 1)
    model = resolve(ways_of([peer])[0].open, "nestwright.autotune.bench.peers")(given)
    (found,) = model.arrays(model.call())
    assert np.array_equal(found, x - x * x)


def test_torch_runs_programs_with_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(6, 3).eval()
    x = torch.arange(12.0).reshape(2, 6)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    given = Given(tmp_path / "m.pt2", {"x": x.numpy()}, 1)
    model = resolve(ways_of(["torch"])[0].open, "nestwright.autotune.bench.peers")(given)
    (found,) = model.arrays(model.call())
    assert np.allclose(found, module(x).detach().numpy()) and "eager" in model.detail
