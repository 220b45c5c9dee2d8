"""Library calls: what they compute, what users register, how failures travel, and who may call."""

from __future__ import annotations

import gc
import json
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.saved.encoding import from_json, to_json
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.arrays import Array
from nestwright.ir.errors import ArgumentError, ArtifactError, LibraryError, UnsupportedError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.library.call import LibraryCall
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call

TARGETS = ("cpu", "cuda-sim -arch=sm_80")


def made(body: str, target: str = "cpu") -> Executable:
    return build(parse(f"HloModule m\n{body}"), target)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    yield
    for name in ("scale", "pair", "hit"):
        unregister_custom_call(name)


SCALE = """ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] custom-call(x), custom_call_target="scale", backend_config="by two"
  ROOT z = f32[8] add(y, x)
}
"""
PAIR = """ENTRY main {
  x = f32[2,3] parameter(0)
  k = s32[] parameter(1)
  t = (f32[2,3], s32[]) tuple(x, k)
  c = (f32[3,2], (s32[], pred[3])) custom-call(t), custom_call_target="pair"
  a = f32[3,2] get-tuple-element(c), index=0
  b = (s32[], pred[3]) get-tuple-element(c), index=1
  n = s32[] get-tuple-element(b), index=0
  p = pred[3] get-tuple-element(b), index=1
  m = s32[] add(n, k)
  ROOT r = (f32[3,2], s32[], pred[3]) tuple(a, m, p)
}
"""
IN_A_LOOP = """
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  w = f32[4] custom-call(v, i), custom_call_target="hit"
  ROOT r = (s32[], f32[4]) tuple(n, w) }
more { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(s), condition=more, body=body
  v = f32[4] get-tuple-element(w), index=1
  ROOT r = f32[4] add(v, v) }
"""


def scale(call: LibraryCall, x: Array) -> Array:
    assert call.target == "scale" and call.backend_config == "by two"
    assert call.results[0].shape == x.shape and call.results[0].dtype == x.dtype
    x *= 2  # the array is the function's own
    return x


def pair(call: LibraryCall, x: Array, k: Array) -> tuple[Array, Array, Array]:
    return x.T, np.asarray(k * 10, np.int32), (x > 0).any(0)


@pytest.mark.parametrize("target", TARGETS)
def test_a_registered_function_computes_a_custom_call(target: str) -> None:
    assert register_custom_call("scale", scale) is scale
    exe = made(SCALE, target)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(exe(x), 3 * x)
    np.testing.assert_array_equal(x, np.arange(8))
    np.testing.assert_array_equal(evaluate(exe.module, [x]), 3 * x)
    assert "library scale (param0[0:32]) -> (result0[0:32])" in made(SCALE).as_text("plan")


@pytest.mark.parametrize("target", TARGETS)
def test_tuples_are_given_and_taken_flat(target: str) -> None:
    register_custom_call("pair")(pair)
    exe = made(PAIR, target)
    x = np.array([[1, -1, 0], [2, -3, 0]], np.float32)
    for found in (exe(x, 3), evaluate(exe.module, [x, np.int32(3)])):
        a, m, p = found
        np.testing.assert_array_equal(a, x.T)
        assert m == 33 and m.dtype == np.int32
        np.testing.assert_array_equal(p, [True, False, False])


@pytest.mark.parametrize("target", TARGETS)
def test_a_failure_ends_the_run_and_the_next_call_works(target: str) -> None:
    seen: list[int] = []

    def hit(call: LibraryCall, v: Array, i: Array) -> Array:
        seen.append(int(i))
        if i == limit:
            raise ZeroDivisionError("as it was raised")
        return v + 1

    register_custom_call("hit", hit)
    exe = made(IN_A_LOOP, target)
    x = np.zeros(4, np.float32)
    limit = 2
    with pytest.raises(ZeroDivisionError, match="as it was raised") as caught:
        exe(x)
    assert seen == [0, 1, 2]
    assert any("'hit'" in note for note in caught.value.__notes__)
    assert caught.traceback[-1].name == "hit"
    limit = 9
    np.testing.assert_array_equal(exe(x), np.full(4, 10))
    np.testing.assert_array_equal(exe(x, out=np.empty(4, np.float32)), np.full(4, 10))
    limit = 1
    with pytest.raises(ZeroDivisionError):
        exe(x, out=np.empty(4, np.float32))
    with pytest.raises(ZeroDivisionError):
        exe.profile(x)


BRANCHES = """
yes { x = f32[4] parameter(0)
  ROOT y = f32[4] custom-call(x), custom_call_target="scale", backend_config="by two" }
no { x = f32[4] parameter(0)
  ROOT y = f32[4] negate(x) }
more { x = f32[4] parameter(0)
  ROOT c = pred[] custom-call(x), custom_call_target="hit" }
body { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  one = f32[1] slice(x), slice={[0:1]}
  s = f32[] reshape(one)
  limit = f32[] constant(4)
  small = pred[] compare(s, limit), direction=LT
  ROOT y = f32[4] conditional(small, x, x), true_computation=yes, false_computation=no }
ENTRY main { x = f32[4] parameter(0)
  y = f32[4] custom-call(x), custom_call_target="scale", backend_config="by two"
  ROOT w = f32[4] while(y), condition=more, body=body }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_conditions_and_branches_may_call(target: str) -> None:
    register_custom_call("scale", scale)
    register_custom_call("hit", lambda call, x: np.asarray(x[0] > 0))
    exe = made(BRANCHES, target)
    for first in (0.25, 1, -3):
        x = np.array([first, 1, 2, 3], np.float32)
        np.testing.assert_array_equal(exe(x), evaluate(exe.module, [x]))
    np.testing.assert_array_equal(exe(np.array([1, 0, 0, 1], np.float32)), [-4, 0, 0, -4])
    register_custom_call("hit", lambda call, x: x)
    with pytest.raises(LibraryError, match=r"must be pred\[\]"):
        exe(x)


def test_an_interrupt_in_a_function_is_raised() -> None:
    def interrupted(call: LibraryCall, x: Array) -> Array:
        raise KeyboardInterrupt

    register_custom_call("scale", interrupted)
    exe = made(SCALE)
    with pytest.raises(KeyboardInterrupt):
        exe(np.zeros(8, np.float32))


@pytest.mark.parametrize(
    "given, why",
    [
        (np.zeros(7, np.float32), r"f32\[8\], not float32\[7\]"),
        (np.zeros(8), r"f32\[8\], not float64\[8\]"),
        ((np.zeros(8, np.float32),) * 2, "must return 1 arrays, gave a tuple of 2"),
        (None, "NoneType does not convert to an array of numbers"),
        ([[1], [2, 3]], "must return 1 arrays, gave a tuple of 2"),
    ],
)
def test_results_that_do_not_fit_are_refused(given: object, why: str) -> None:
    register_custom_call("scale", lambda call, x: given)
    exe = made(SCALE)
    x = np.zeros(8, np.float32)
    for run in (lambda: exe(x), lambda: evaluate(exe.module, [x])):
        with pytest.raises(LibraryError, match=why):
            run()


def test_other_byte_orders_strides_and_single_tuples_are_taken() -> None:
    register_custom_call("scale", lambda call, x: (np.repeat(x, 2).astype(">f4")[::2],))
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(made(SCALE)(x), 2 * x)


def test_an_unknown_target_is_refused_with_advice() -> None:
    with pytest.raises(UnsupportedError, match=r"no function computes `scale`(.|\n)*register_cust"):
        made(SCALE)
    with pytest.raises(UnsupportedError, match="no function computes `scale`"):
        evaluate(parse(f"HloModule m\n{SCALE}"), [np.zeros(8, np.float32)])


def test_a_saved_executable_looks_its_functions_up(tmp_path: Path) -> None:
    register_custom_call("scale", scale)
    made(SCALE).save(tmp_path / "scale.nw")
    unregister_custom_call("scale")
    exe = load(tmp_path / "scale.nw")
    x = np.ones(8, np.float32)
    with pytest.raises(LibraryError, match=r"no function(.|\n)*register_custom_call"):
        exe(x)
    register_custom_call("scale", scale)
    np.testing.assert_array_equal(exe(x), 3 * x)
    register_custom_call("scale", lambda call, x: x)
    np.testing.assert_array_equal(exe(x), 2 * x)


def test_a_function_may_call_executables_and_itself() -> None:
    depth = 0

    def again(call: LibraryCall, x: Array) -> Array:
        nonlocal depth
        depth += 1
        if depth == 1:
            return exe(x)  # type: ignore[no-any-return]
        if depth == 3:
            raise ValueError("too deep")
        return x

    register_custom_call("scale", again)
    exe = made(SCALE)
    x = np.ones(8, np.float32)
    np.testing.assert_array_equal(exe(x), 3 * x)
    with pytest.raises(ValueError, match="too deep"):
        exe(x)


def test_threads_get_their_own_failures() -> None:
    def picky(call: LibraryCall, x: Array) -> Array:
        if x[0] % 2:
            raise ValueError(str(int(x[0])))
        return x

    register_custom_call("scale", picky)
    exe = made(SCALE)
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(50):
            value = number + turn
            x = np.full(8, value, np.float32)
            try:
                good = (exe(x) == 2 * value).all() and value % 2 == 0
            except ValueError as error:
                good = value % 2 == 1 and str(error) == str(value)
            if not good:
                wrong.append(f"{number} {turn}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_executables_come_and_go() -> None:
    register_custom_call("scale", scale)
    kept = made(SCALE)
    call = made(SCALE).loaded().call  # all that is left of its executable
    del_me = made(SCALE)
    del del_me
    gc.collect()
    x = np.ones(8, np.float32)
    np.testing.assert_array_equal(kept(x), 3 * x)
    np.testing.assert_array_equal(call(x), 3 * x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_on() -> None:
    register_custom_call("scale", scale)
    exe, states = made(SCALE), made(STATE)
    x = np.ones(8, np.float32)
    exe(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12+: threads and fork
        pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if (exe(x) == 3).all() and len(states()) == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


STATE = """ENTRY main {
  a = u64[2] rng-get-and-update-state(), delta=5
  b = u64[2] rng-get-and-update-state(), delta=9223372036854775807
  ROOT r = (u64[2], u64[2]) tuple(a, b)
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_the_state_of_random_numbers_goes_on_with_each_call(target: str) -> None:
    """From XLA's first state; every executable has its own."""
    first = 0x7012395
    exe, other = made(STATE, target), made(STATE, target)
    total = 0
    for _ in range(3):
        found = sorted(int(s[0]) + (int(s[1]) << 64) for s in exe())
        assert found[0] == first + total
        assert found[1] - found[0] in (5, (1 << 63) - 1)
        total += 5 + (1 << 63) - 1
    assert total > 1 << 64
    starts = {int(s[0]) for s in other()}
    assert first in starts
    assert first in {int(s[0]) for s in evaluate(exe.module, [])}


LINEAR = """ENTRY main {
  p = c64[3,8,37] parameter(0)
  a = f32[2,33,33] parameter(1)
  b = f32[2,33,5] parameter(2)
  f = c64[3,8,37] fft(p), fft_type=FFT, fft_length={8,37}
  l = f32[2,33,33] cholesky(a), lower=true
  x = f32[2,33,5] triangular-solve(l, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
  ROOT r = (c64[3,8,37], f32[2,33,5]) tuple(f, x)
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_transforms_and_solvers_with_their_costs(target: str) -> None:
    """The numbers of operations are those that XLA's cost analysis gives for the three."""
    exe = made(LINEAR, target)
    p, a, b = exe.random_arguments(3)
    a = a @ np.swapaxes(a, 1, 2) + 33 * np.eye(33, dtype=np.float32)
    f, x = exe(p, a, b)
    np.testing.assert_allclose(f, np.fft.fft2(p), rtol=1e-4, atol=1e-4)
    factor = np.linalg.cholesky(a)
    np.testing.assert_allclose(factor @ x, b, rtol=1e-4, atol=1e-4)
    assert exe.cost_analysis()["flops"] == 106560 + 23958 + 21780
    assert exe.memory_analysis()["temp_size_in_bytes"] >= l_bytes(exe)
    found = exe.profile(p, a, b)
    rows = [(r.name, r.group) for r in found.rows if r.kind == "library"]
    assert rows == [("f", "fft"), ("l", "cholesky"), ("x", "triangular-solve")]
    assert found.flops == exe.cost_analysis()["flops"]


def l_bytes(exe: Executable) -> int:
    """The factor is the one array between the calls."""
    return next(t.results[0].bytes for t in exe.plan.thunks if t.name == "l")  # type: ignore[union-attr]


def test_thunks_survive_json_and_their_sizes_are_checked() -> None:
    register_custom_call("pair", pair)
    plan = made(PAIR).plan
    data = json.loads(json.dumps(to_json(plan)))
    assert from_json(data) == plan
    for change in (
        lambda t: t["operands"].pop(),
        lambda t: t["call"]["results"].pop(),
        lambda t: t["call"]["operands"][0].__setitem__(1, [1 << 40]),
        lambda t: t["call"]["results"][0].__setitem__(0, "f64"),
        lambda t: t["call"]["attributes"].__setitem__("x", None),
    ):
        damaged = json.loads(json.dumps(to_json(plan)))
        change(next(t for t in damaged["thunks"] if t["do"] == "library"))
        with pytest.raises(ArtifactError, match="cannot be read"):
            from_json(damaged)


EFFECTS = """
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  u = () custom-call(i), custom_call_target="hit", custom_call_has_side_effect=true
  ROOT r = (s32[], f32[4]) tuple(n, v) }
more { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
again { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  ROOT w = (s32[], f32[4]) while(s), condition=more, body=body }
ENTRY main { x = f32[4] parameter(0)
  w = (s32[], f32[4]) call(x), to_apply=again
  ten = s32[] constant(10)
  g = s32[2] custom-call(ten), custom_call_target="hit", custom_call_has_side_effect=true
  q = s32[2] custom-call(ten), custom_call_target="hit"
  ROOT r = ROOT_OF_IT }
"""
ROOTS = {
    "a constant": "f32[] constant(7)",
    "a parameter": "(f32[4], f32[4]) tuple(x, x)",
    "nothing": "() tuple()",
    "used otherwise": "f32[4] add(x, x)",
}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("target", TARGETS)
def test_what_has_an_effect_runs_though_nothing_uses_it(target: str, root: str) -> None:
    """In loops, too; what is not said to have one does not run."""
    seen: list[int] = []

    def hit(call: LibraryCall, i: Array) -> Array | tuple[()]:
        seen.append(int(i))
        return np.zeros(2, np.int32) if call.results else ()

    register_custom_call("hit", hit)
    exe = made(EFFECTS.replace("ROOT_OF_IT", ROOTS[root]), target)
    x = np.ones(4, np.float32)
    for run in (lambda: exe(x), lambda: evaluate(exe.module, [x])):
        seen.clear()
        run()
        assert sorted(seen) == [0, 1, 2, 10]


@pytest.mark.parametrize(
    "target, function", [("", scale), (7, scale), ("scale", "no function"), ("scale", 3)]
)
def test_what_cannot_be_registered(target: Any, function: Any) -> None:
    with pytest.raises(ArgumentError):
        register_custom_call(target, function)
    with pytest.raises(UnsupportedError):
        made(SCALE)


def test_what_is_raised_holds_no_memory_of_the_run() -> None:
    """Frames live on with an exception; what they see of the arena may be gone by then."""

    def fails(call: LibraryCall, x: Array) -> Array:
        raise ValueError

    register_custom_call("scale", fails)
    with pytest.raises(ValueError) as caught:
        made(SCALE)(np.zeros(8, np.float32))
    frames = [entry.frame.f_locals for entry in caught.traceback if entry.name != "fails"]
    ours = [v for names in frames[1:] for v in names.values()]
    inside = [v for value in ours if isinstance(value, list) for v in value]
    assert len(frames) > 2
    assert not any(isinstance(v, np.ndarray) for v in (*ours, *inside))
