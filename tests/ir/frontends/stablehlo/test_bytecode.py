"""StableHLO bytecode: decoded by jaxlib where that is installed, refused with reasons elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ParseError, UnsupportedError
from nestwright.ir.frontends.load import load_model

ARTIFACT = b"ML\xefR\rStableHLO_v1.15.0\0"


@pytest.fixture
def exported() -> Any:
    """A function of JAX with weights of its own, for any number of rows."""
    jax = pytest.importorskip("jax", reason="writes bytecode, and brings jaxlib, which decodes it")
    export = pytest.importorskip("jax.export")
    w = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    (n,) = export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((n, 5), np.float32)
    return export.export(jax.jit(lambda x: jax.numpy.tanh(x @ w)))(shape)


def test_bytecode_is_what_its_text_is(exported: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.mlirbc"
    path.write_bytes(exported.mlir_module_serialized)
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    got = nw.build(path, shapes={0: (3, 5)})(x)
    want = nw.build(exported, shapes={0: (3, 5)})(x)
    assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
    served = nw.build(path, shapes={0: (range(1, 9), 5)}, rule="buckets")
    np.testing.assert_allclose(served(x), got, rtol=1e-6)


def test_bytecode_of_shardings_is_read(tmp_path: Path) -> None:
    """Shardy's operations stay in what JAX exports."""
    jax = pytest.importorskip("jax", reason="writes bytecode, and brings jaxlib, which decodes it")
    export = pytest.importorskip("jax.export")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    f = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, rows) * 2)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "model.mlirbc"
    path.write_bytes(export.export(f)(x).mlir_module_serialized)
    np.testing.assert_array_equal(nw.build(path)(x), x * 2)


def test_bytecode_of_the_oldest_format_is_read(tmp_path: Path) -> None:
    jaxlib = pytest.importorskip("jaxlib.mlir.dialects.stablehlo", reason="writes bytecode")
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    path = tmp_path / "model.mlirbc"
    path.write_bytes(jaxlib.serialize_portable_artifact_str(text, "0.9.0"))
    assert nw.build(path)(np.ones(2, np.float32)).tolist() == [1, 1]


def test_bytecode_cut_short_is_a_parse_error(exported: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.mlirbc"
    path.write_bytes(exported.mlir_module_serialized[:-9])
    with pytest.raises(ParseError, match=r"model.mlirbc: cannot decode .*bytes when only"):
        load_model(path)


def test_an_artifact_without_jaxlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    path = tmp_path / "model.mlirbc"
    path.write_bytes(ARTIFACT)
    with pytest.raises(UnsupportedError, match=r"jaxlib has to decode it.*\n.*nestwright\[jax\]"):
        load_model(path)


def test_other_bytecode_of_mlir_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.mlirbc"
    path.write_bytes(b"ML\xefR\rMLIR20.0.0git\0")
    with pytest.raises(UnsupportedError, match=r"no portable artifact of StableHLO"):
        load_model(path)


def test_an_export_that_was_serialized_whole_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    table = (60).to_bytes(4, "little") + bytes(
        200
    )  # a flatbuffer, the artifact in one of its fields
    path.write_bytes(table + len(ARTIFACT).to_bytes(4, "little") + ARTIFACT)
    with pytest.raises(
        UnsupportedError, match=r"looks like what jax\.export serialized.*\n.*mlirbc"
    ):
        load_model(path)
