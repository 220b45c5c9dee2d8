"""Sources of a profile's rows: what each front-end says of where an operation is from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw

MLIR = """
module @m {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<8xf32> loc(#loc2)
    return %0 : tensor<8xf32>
  }
}
#loc1 = loc("model.py":21:3)
#loc2 = loc("jit(f)/tanh"(#loc1))
"""


def sources(model: Any, *args: Any) -> tuple[str, ...]:
    exe = nw.build(model, cache=False)
    return tuple(s for r in exe.profile(*args, rounds=1).rows for s in r.sources)


def test_stablehlo_has_files_and_lines(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(MLIR)
    assert sources(tmp_path / "m.mlir", np.ones(8, np.float32)) == ("model.py:21",)


def test_frames_of_hlo_text_are_followed(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text("""HloModule m

FileNames
1 "net.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=33 end_line=33 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY main { x = f32[8] parameter(0)
 ROOT y = f32[8] tanh(x), metadata={op_name="tanh" stack_frame_id=1} }
""")
    assert sources(tmp_path / "m.hlo", np.ones(8, np.float32)) == ("net.py:33",)


def test_onnx_has_the_names_of_nodes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    made, value = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        made.make_node("MatMul", ["x", "w"], ["h"], name="layer1/MatMul"),
        made.make_node("Relu", ["h"], ["y"], name="layer1/Relu"),
    ]
    x, y = (made.make_tensor_value_info(n, value, d) for n, d in (("x", [2, 8]), ("y", [2, 4])))
    w = made.make_tensor("w", value, [8, 4], np.arange(32, dtype=np.float32))
    model = made.make_model(
        made.make_graph(nodes, "g", [x], [y], [w]),
        opset_imports=[made.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, tmp_path / "m.onnx")
    found = sources(tmp_path / "m.onnx", np.ones((2, 8), np.float32))
    assert found == ("layer1/MatMul", "layer1/Relu")


def test_torch_has_files_and_lines() -> None:
    torch = pytest.importorskip("torch")

    class Doubled(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.tanh(x) * 2

    exe = nw.lower(Doubled(), torch.ones(8)).compile()
    (row, *_) = exe.profile(torch.ones(8), rounds=1).rows
    assert row.sources and all(Path(__file__).name in s for s in row.sources)


def test_jax_has_files_and_lines() -> None:
    jax = pytest.importorskip("jax")
    exe = nw.lower(lambda x: jax.numpy.tanh(x) * 2, np.ones(8, np.float32)).compile()
    (row, *_) = exe.profile(np.ones(8, np.float32), rounds=1).rows
    assert row.sources and all(Path(__file__).name in s for s in row.sources)
