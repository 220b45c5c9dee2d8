"""Models of open sizes: each size compiled, or buckets of them, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.rules import read_rule
from nestwright.ir.errors import ArgumentError, UnsupportedError
from nestwright.ir.frontends import registry
from nestwright.ir.frontends.registry import FileFrontend
from nestwright.ir.frontends.signatures import text_matches

# A front-end of open sizes: `rows` applies a softmax to each column of x, of n rows, by a matrix.
READER = '''"""Row programs -> Imported."""

import numpy as np

from nestwright.ir.frontends.imported import Imported
from nestwright.ir.hlo.text import parse

TEXT = """HloModule rows
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY main {{
  x = f32[{n},3] parameter(0)
  w = f32[3,3] parameter(1)
  y = f32[{n},3] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  e = f32[{n},3] exponential(y)
  zero = f32[] constant(0)
  s = f32[3] reduce(e, zero), dimensions={{0}}, to_apply=add
  by = f32[] constant({by})
  bys = f32[3] broadcast(by), dimensions={{}}
  t = f32[3] multiply(s, bys)
  ss = f32[{n},3] broadcast(t), dimensions={{1}}
  ROOT z = f32[{n},3] divide(e, ss)
}}
"""
W = np.eye(3, dtype=np.float32)[::-1].copy()
READ = []


def read(path, shapes=None):
    n = (shapes or {}).get("x", (shapes or {}).get(0, (4, 3)))[0]
    READ.append(n)
    by = 1 / n**2 if "square" in path.read_text() else 1
    module = parse(TEXT.format(n=n, by=by))
    return Imported(module=module, inputs=("x",), outputs=("z",), weights={1: W})
'''
ROWS = FileFrontend(
    name="a row program",
    recognizes=text_matches(rb"rows\b"),
    read="row_frontend:read",
    hint="write one by hand",
    opens=True,
    sized=True,
)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "row_frontend.py").write_text(READER)
    (tmp_path / "model").write_text("rows")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "FILES", (*registry.FILES, ROWS))
    yield tmp_path / "model"
    sys.modules.pop("row_frontend", None)


def data(n: int) -> Any:
    return np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)


def right(x: Any) -> Any:
    e = np.exp(x[:, ::-1])
    return e / e.sum(0)


def test_exact_compiles_each_size(rows: Path) -> None:
    f = nw.build(rows, shapes={"x": (None, 3)})
    for n in (1, 5, 2, 5):
        np.testing.assert_allclose(f(data(n)), right(data(n)), rtol=1e-5)
    assert [c.changes for c in nw.explain_recompile(f)][1:] == [
        (("argument 0", "float32[1,3]", "float32[5,3]"),),
        (("argument 0", "float32[5,3]", "float32[2,3]"),),
    ]


@pytest.mark.parametrize(
    ("rule", "compiled"), [("buckets", [8, 1, 16]), (6, [6, 12]), ([4, 8, 30], [8, 4, 30])]
)
def test_buckets_pad_and_mask(rows: Path, rule: Any, compiled: list[int]) -> None:
    f = nw.build(rows, shapes={"x": (range(1, 31), 3)}, rule=rule)
    before = nw.counters().shapes
    for n in (5, 8, 6, 7, 1, 11, 9, 12):
        np.testing.assert_allclose(f(x=data(n)), right(data(n)), rtol=1e-5)
    found = [c.signature.kinds[0][0][0] for c in f.compilations]
    assert set(found) >= set(compiled) - {1} and nw.counters().shapes - before == len(found)
    assert len(found) <= 4


def test_a_bucket_ends_where_the_range_does(rows: Path) -> None:
    f = nw.build(rows, shapes={"x": (range(1, 7), 3)}, rule="buckets")
    np.testing.assert_allclose(f(data(5)), right(data(5)), rtol=1e-5)
    assert f.compilations[0].signature.kinds[0][0] == (6, 3)
    profile = f.profile(data(6), rounds=1)
    assert profile.bounded and profile.sum > 0 and len(f.compilations) == 1


def test_results_may_be_given(rows: Path) -> None:
    f = nw.build(rows, shapes={"x": (None, 3)})
    out = np.empty((4, 3), np.float32)
    assert f(data(4), out=out) is out
    np.testing.assert_allclose(out, right(data(4)), rtol=1e-5)


def test_what_cannot_be_padded_is_refused_by_name(rows: Path) -> None:
    rows.write_text("rows square")
    f = nw.build(rows, shapes={"x": (None, 3)}, rule="buckets")
    with pytest.raises(UnsupportedError, match="constant `by`: its literal depends on the size"):
        f(data(5))
    exact = nw.build(rows, shapes={"x": (None, 3)})
    np.testing.assert_allclose(exact(data(5)), right(data(5)) * 25, rtol=1e-5)


def test_sizes_outside_of_what_was_asked_for(rows: Path) -> None:
    f = nw.build(rows, shapes={"x": (range(2, 9, 2), 3)})
    for n in (1, 3, 10):
        with pytest.raises(ArgumentError, match=r"shapes= has \[2\.\.8 by 2, 3\]"):
            f(data(n))
    with pytest.raises(ArgumentError, match="over the largest bucket, 8"):
        nw.build(rows, shapes={"x": (None, 3)}, rule=[4, 8])(data(9))
    with pytest.raises(ArgumentError, match="there is no input 'self'"):
        f(self=data(2))
    with pytest.raises(ArgumentError, match="there is no input 'y'"):
        nw.build(rows, shapes={"y": (None, 3)})(data(4))
    for rule in ("bucket", 0, [], [3, 0], True, 2.5):
        with pytest.raises(ArgumentError, match="no such rule"):
            read_rule(rule)  # type: ignore[arg-type]


def test_sizes_are_numbers_of_any_kind_and_nothing_else(rows: Path) -> None:
    fixed = nw.build(rows, shapes={"x": np.array([2, 3])})
    np.testing.assert_allclose(fixed(data(2)), right(data(2)), rtol=1e-5)
    for shapes in (5, "x", {"x": None}, {"x": 5}, {"x": "23"}, {"x": (2.0, 3)}, {"x": (True, 3)}):
        with pytest.raises(ArgumentError, match=r"shapes=.*no sizes"):
            nw.build(rows, shapes=shapes)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no such rule"):
        nw.build(rows, shapes={"x": (2, 3)}, rule="bucket")


def test_a_model_of_fixed_sizes_serves_these_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text("HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }")
    f = nw.build(path, shapes={"x": (None,)})
    np.testing.assert_array_equal(f(np.ones(4, np.float32)), -1)
    with pytest.raises(ArgumentError, match=r"the model has f32\[4\]"):
        f(np.ones(5, np.float32))


def test_jax_functions_of_open_sizes() -> None:
    pytest.importorskip("jax", reason="lowers the function")
    import jax.numpy as jnp

    def attention(q: Any, k: Any) -> Any:
        s = q @ k.T
        e = jnp.exp(s - s.max(1, keepdims=True))
        return jnp.cumsum(e / e.sum(1, keepdims=True), 0) @ k

    f = nw.build(attention, shapes={0: (range(1, 17), 4), 1: (None, 4)}, rule="buckets")
    rng = np.random.default_rng(0)
    for n, m in ((3, 5), (4, 7), (4, 8), (3, 3), (1, 6), (2, 8)):
        q, k = (rng.standard_normal((s, 4)).astype(np.float32) for s in (n, m))
        np.testing.assert_allclose(f(q, k), attention(q, k), rtol=1e-4, atol=1e-5)
    assert len(f.compilations) <= 5
