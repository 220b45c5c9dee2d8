"""``nw.jit`` on trees of arguments and results; a stand-in takes JAX's place where it is not."""

from __future__ import annotations

import functools
import sys
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, UnsupportedError
from nestwright.ir.frontends.hlo_proto.writer import to_proto

Pair = namedtuple("Pair", "w b")

# ---- as much of JAX as these functions need -------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A tree's shape: a leaf, nothing, or a kind of container with its keys and branches."""

    kind: Any
    keys: tuple[Any, ...] = ()
    branches: tuple[Tree, ...] = ()


def flatten(x: Any) -> tuple[list[Any], Tree]:
    if x is None:
        return [], Tree(None)
    if isinstance(x, dict):
        keys: tuple[Any, ...] = tuple(sorted(x))
        parts = [x[k] for k in keys]
    elif isinstance(x, list | tuple):
        keys, parts = (), list(x)
    else:
        return [x], Tree("leaf")
    found = [flatten(p) for p in parts]
    return [a for leaves, _ in found for a in leaves], Tree(
        type(x), keys, tuple(t for _, t in found)
    )


def paths(x: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of a tree, each with the keys that lead to it."""
    if x is None:
        return []
    if not isinstance(x, dict | list | tuple):
        return [((), x)]
    items = sorted(x.items()) if isinstance(x, dict) else enumerate(x)
    return [((key, *path), leaf) for key, part in items for path, leaf in paths(part)]


def unflatten(tree: Tree, leaves: Any) -> Any:
    rest = iter(leaves)

    def make(t: Tree) -> Any:
        if t.kind in (None, "leaf"):
            return next(rest) if t.kind else None
        parts = [make(b) for b in t.branches]
        if t.kind is dict:
            return dict(zip(t.keys, parts, strict=True))
        return t.kind(*parts) if hasattr(t.kind, "_fields") else t.kind(parts)

    return make(tree)


class Tracer:
    """A value in a program that is being written down."""

    def __init__(self, lines: list[str], shape: tuple[int, ...], text: str = "") -> None:
        self.lines, self.shape, self.name = lines, shape, f"v{len(lines)}"
        lines.append(f"{self.name} = {self.type} {text or f'parameter({len(lines)})'}")

    @property
    def type(self) -> str:
        return f"f32[{','.join(map(str, self.shape))}]"

    def _with(self, op: str, other: Any) -> Tracer:
        lines = self.lines
        if not isinstance(other, Tracer):
            other = Tracer(lines, (), f"constant({float(other)})")
        if other.shape != self.shape:
            assert other.shape == ()
            other = Tracer(lines, self.shape, f"broadcast({other.name}), dimensions={{}}")
        return Tracer(lines, self.shape, f"{op}({self.name}, {other.name})")

    def __add__(self, other: Any) -> Tracer:
        return self._with("add", other)

    def __mul__(self, other: Any) -> Tracer:
        return self._with("multiply", other)


class Lowered:
    def __init__(self, text: str, out_info: Any) -> None:
        self.text, self.out_info = text, out_info

    def compiler_ir(self, dialect: str | None = None) -> Any:
        return SimpleNamespace(as_serialized_hlo_module_proto=lambda: to_proto(nw.parse(self.text)))


def stand_in_jit(
    function: Any, keep_unused: bool, static_argnums: Any = (), static_argnames: Any = ()
) -> Any:
    def lower(*args: Any, **named: Any) -> Lowered:
        lines: list[str] = []
        fixed = {n: args[n] for n in static_argnums if n < len(args)}
        given = {k: named.pop(k) for k in static_argnames if k in named}
        leaves, tree = flatten(([a for n, a in enumerate(args) if n not in fixed], named))
        traced = [Tracer(lines, np.shape(a)) for a in leaves]
        rest, named = unflatten(tree, traced)
        for n, a in sorted(fixed.items()):
            rest.insert(n, a)
        out = function(*rest, **named, **given)
        found = flatten(out)[0]
        kinds, names = ", ".join(r.type for r in found), ", ".join(r.name for r in found)
        root = f"ROOT t = ({kinds}) tuple({names})"
        if len(found) == 1:
            root = f"ROOT r = {kinds} copy({names})"
        body = "\n  ".join((*lines, root))
        return Lowered(f"HloModule traced\nENTRY main {{\n  {body}\n}}", out)

    return SimpleNamespace(lower=lower)


STAND_IN = SimpleNamespace(
    config=SimpleNamespace(jax_enable_x64=False),
    jit=stand_in_jit,
    tree=SimpleNamespace(
        flatten=flatten,
        unflatten=unflatten,
        structure=lambda x: flatten(x)[1],
        leaves=lambda x: flatten(x)[0],
    ),
    tree_util=SimpleNamespace(
        keystr=lambda path: "".join(f"[{key!r}]" for key in path),
        tree_leaves_with_path=lambda x: paths(x),
    ),
)


@pytest.fixture(autouse=True)
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    try:
        import jax as found  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        monkeypatch.setitem(sys.modules, "jax", STAND_IN)  # type: ignore[arg-type]
        return STAND_IN
    return found


# ---- trees ----------------------------------------------------------------------------------

X = np.arange(4, dtype=np.float32)
ONE = np.float32(1)


def layers(params: Any, x: Any) -> Any:
    for w, b in params:
        x = x * w + b
    return {"y": x, "x": [x + 1.0, (None, x * 2.0)]}


def test_a_list_of_arrays_of_unequal_shapes() -> None:
    params = [(X, np.float32(3)), (ONE, X + 1)]
    found = nw.jit(layers)(params, X)
    y = (X * X + 3) * 1 + (X + 1)
    assert type(found) is dict and sorted(found) == ["x", "y"]
    assert type(found["x"]) is list and type(found["x"][1]) is tuple and found["x"][1][0] is None
    np.testing.assert_array_equal(found["y"], y)
    np.testing.assert_array_equal(found["x"][0], y + 1)
    np.testing.assert_array_equal(found["x"][1][1], y * 2)


def test_named_tuples_and_dicts_stay_what_they_are() -> None:
    f = nw.jit(lambda p: Pair(p["a"].w + p["b"], {"s": p["a"].b * 2.0}))
    found = f({"b": X, "a": Pair(X, np.float32(2))})
    assert type(found) is Pair
    np.testing.assert_array_equal(found.w, X + X)
    np.testing.assert_array_equal(found.b["s"], 4)


def test_other_trees_are_other_combinations() -> None:
    f = nw.jit(lambda p, x: [x + a for a in p])
    assert len(f([ONE], X)) == 1
    assert len(f([ONE, ONE], X)) == 2
    assert len(f((ONE, ONE), X)) == 2
    assert len(f([ONE, ONE], X + 1)) == 2
    assert len(f.shapes) == 3


def test_denormals_are_an_option() -> None:
    tiny = np.full(5, 1e-40, np.float32)
    for denormals, wanted in (("flush", [0.0] * 5), ("keep", (tiny + tiny).tolist())):
        assert nw.jit(lambda x: x + x, denormals=denormals)(tiny).tolist() == wanted


def test_no_result_and_one_in_a_tuple() -> None:
    (found,) = nw.jit(lambda x: (x + x,))(X)
    np.testing.assert_array_equal(found, X + X)
    assert nw.jit(lambda x: [x + x])(X)[0].tolist() == (X + X).tolist()
    assert nw.jit(lambda x, none: {"a": x + x, "b": none})(X, None)["b"] is None


def test_keywords_and_defaults() -> None:
    f = nw.jit(lambda x, by=2.0, *, plus=0.0: x * by + plus)
    np.testing.assert_array_equal(f(X), X * 2)
    np.testing.assert_array_equal(f(X, by=ONE), X)
    np.testing.assert_array_equal(f(X, plus=ONE, by=X), X * X + 1)
    np.testing.assert_array_equal(f(x=X), X * 2)
    assert len(f.shapes) == 4


def test_static_arguments_are_compiled_in() -> None:
    def power(x: Any, n: int, m: int = 1) -> Any:
        y = x
        for _ in range(n - 1):
            y = y * x
        return y + m

    f = nw.jit(power, static_argnums=1, static_argnames="m")
    for n, m in ((2, 1), (3, 1), (2, 1), (2, 5)):
        np.testing.assert_array_equal(f(X, n, m=m), X**n + m)
    np.testing.assert_array_equal(f(X, n=3), X**3 + 1)
    np.testing.assert_array_equal(f(X, 2, 5), X**2 + 5)
    assert f.executable(X, 2, m=5).plan.params[0].dims == (4,)
    with pytest.raises(ArgumentError, match="hash"):
        f(X, [2])
    with pytest.raises(ArgumentError, match="has no such argument"):
        nw.jit(power, static_argnums=-4)


def test_python_scalars_by_type() -> None:
    f = nw.jit(lambda x, by: x * by)
    np.testing.assert_array_equal(f(X, 3.0), X * 3)
    np.testing.assert_array_equal(f(X, 4.0), X * 4)
    assert len(f.shapes) == 1


def test_a_flat_call_does_not_pass_through_trees(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = nw.jit(lambda x, y: (x + y, x * y))
    f(X, X)

    def never(*args: object) -> None:
        raise AssertionError("a known flat call needs no tree")

    monkeypatch.setattr(jax.tree, "flatten", never)
    monkeypatch.setattr(jax.tree, "unflatten", never)
    both = f(X, X)
    assert type(both) is tuple
    np.testing.assert_array_equal(both[1], X * X)


class Broken:
    def __array__(self, *args: object, **options: object) -> Any:
        raise ZeroDivisionError("boom")


@pytest.mark.parametrize(
    "args", [({1: X, "a": X},), (Broken(),), ([Broken()],), ([object()],), (X, X, X), ()]
)
def test_what_cannot_be_taken_is_refused(args: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError):
        nw.jit(lambda x: x + x)(*args)


def test_masked_arrays_are_refused_whatever_their_place() -> None:
    masked = np.ma.masked_array(X, mask=[1, 0, 0, 0])
    f = nw.jit(lambda p: p[0] + p[1])
    f([X, X])
    with pytest.raises(ArgumentError, match="masked array"):
        f([masked, X])
    with pytest.raises(ArgumentError, match="masked array"):
        f([masked.astype(np.float64), X])


def test_without_jax_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(UnsupportedError, match="not installed"):
        nw.jit(lambda x: x)(X)


def test_registered_dataclasses(jax: Any) -> None:
    if jax is STAND_IN:
        pytest.skip("needs jax, where classes are registered")

    @dataclass
    class Layer:
        w: Any
        b: Any

    jax.tree_util.register_dataclass(Layer, data_fields=["w", "b"], meta_fields=[])
    found = nw.jit(lambda p, x: Layer(x * p.w, p.b + 1.0))(Layer(X, ONE), X)
    assert type(found) is Layer
    np.testing.assert_array_equal(found.w, X * X)
    assert found.b == 2


def test_a_jitted_method_takes_its_instance_first() -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        @functools.partial(nw.jit, static_argnums=0)
        def times(self, x: Any) -> Any:
            """Scale."""
            return x * self.by

    two, three = Scaled(2.0), Scaled(3.0)
    np.testing.assert_array_equal(two.times(X), X * 2)
    np.testing.assert_array_equal(three.times(X), X * 3)
    assert Scaled.times.__name__ == "times" and Scaled.times.__doc__ == "Scale."


def test_donated_arguments_stay_valid() -> None:
    f = nw.jit(lambda x, y: x + y, donate_argnums=(0,), donate_argnames="y")
    np.testing.assert_array_equal(f(X, X), X + X)
    np.testing.assert_array_equal(f(X, X), X + X)


def test_options_of_jax_that_change_nothing() -> None:
    f = nw.jit(lambda x, y: x + x, keep_unused=True, inline=True)
    np.testing.assert_array_equal(f(X, X), X + X)


def test_bytes_in_another_order() -> None:
    f = nw.jit(lambda x: x + x)
    for swapped in (X.astype(">f4"), X.astype(">f4")[::-1]):
        np.testing.assert_array_equal(f(swapped), swapped * 2)
