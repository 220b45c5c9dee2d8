"""One error for all that cannot be computed; halves of operations; collectives of one device."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.findings import Finding
from nestwright.ir.hlo.analysis.support import KINDS, NAMED, refusal
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

X = np.arange(4, dtype=np.float32)

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
NEGATED = "negated { a = f32[4] parameter(0) ROOT c = f32[4] negate(a) }\n"


def module(body: str, header: str = "") -> str:
    return f"HloModule m{header}\n{ADD}{NEGATED}ENTRY e {{ x = f32[4] parameter(0)\n{body} }}"


def refused(text: str) -> UnsupportedError:
    """What the interpreter, the build and the stages after the input all refuse alike."""
    read, errors = parse(text), []
    for way in (
        lambda: evaluate(read, [X]),
        lambda: build(read),
        lambda: stage_text(read, "cpu", "plan"),
    ):
        with pytest.raises(UnsupportedError) as caught:
            way()
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1]) == str(errors[2])
    assert errors[0].findings == errors[1].findings
    return errors[1]


def test_everything_is_listed_with_its_source_and_what_to_do() -> None:
    text = """HloModule m

FileNames
1 "model.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=30 end_line=30 column=1 end_column=9}
2 {file_name_id=1 function_name_id=1 line=41 end_line=41 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

inner {
  p = f32[4] parameter(0)
  ROOT s = f32[4] shuffle(p), dimensions={0}, metadata={op_name="s" stack_frame_id=2}
}

ENTRY e {
  x = f32[4] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(x, t), metadata={source_file="queue.py" source_line=7}
  c = f32[4] call(x), to_apply=inner
  w = f32[4] constant({...})
  g = f32[4] custom-call(c), custom_call_target="__cublas$gemm"
  ROOT r = f32[4] add(g, w)
}"""
    error = refused(text)
    found = {f.name: f for f in error.findings}
    assert set(found) == {"s", "o", "w", "g"}
    assert str(found["s"]) == "shuffle `s` in `inner` (model.py:41)"
    assert found["o"].source == "queue.py:7" and found["w"].source == ""
    assert "before optimizations" in found["g"].hint and "__cublas$gemm" in found["g"].reason
    assert "large_constants" in found["w"].hint
    said = str(error)
    assert said.startswith("m: 4 instructions cannot be compiled:\n")
    assert all(part in said for part in ("(queue.py:7)", "(model.py:41)", "hint: ", "{...}"))
    assert pickle.loads(pickle.dumps(error)).findings == error.findings


def test_dead_instructions_stop_nobody() -> None:
    body = "s = f32[4] shuffle(x), dimensions={0}\nROOT r = f32[4] negate(x)"
    np.testing.assert_array_equal(build(parse(module(body)))(X), -X)
    np.testing.assert_array_equal(evaluate(parse(module(body)), [X]), -X)


def test_what_a_tuple_holds_unused_stops_nobody() -> None:
    body = "s = f32[4] shuffle(x), dimensions={0}\nn = f32[4] negate(x)\n"
    body += "t = (f32[4], f32[4]) tuple(s, n)\nROOT r = f32[4] get-tuple-element(t), index=1"
    np.testing.assert_array_equal(build(parse(module(body)))(X), -X)
    np.testing.assert_array_equal(evaluate(parse(module(body)), [X]), -X)


def test_an_effect_in_a_tuple_is_not_forgotten() -> None:
    body = "k = token[] after-all()\no = token[] outfeed(x, k)\n"
    body += "t = (token[], f32[4]) tuple(o, x)\nROOT r = f32[4] get-tuple-element(t), index=1"
    assert [f.opcode for f in refused(module(body)).findings] == ["outfeed"]


def test_a_thousand_findings_make_a_short_text() -> None:
    many = [Finding("send", f"s{n}", "e", f"reason {n % 40}", "stop") for n in range(1000)]
    error = refusal(many, "m")
    assert len(error.findings) == 1000
    lines = str(error).splitlines()
    assert lines[0] == "m: 1000 instructions cannot be compiled:"
    assert len(lines) == 2 + KINDS * (NAMED + 3)
    assert lines[1] == "  25 x send: reason 0" and f"and {25 - NAMED} more" in lines[NAMED + 2]
    assert lines[-1] == "  and 400 instructions of 16 other kinds"


@pytest.mark.parametrize(
    "body",
    [
        "s = (f32[4], f32[4], u32[]) copy-start(x)\nd = f32[4] copy-done(s)\n"
        "ROOT r = f32[4] negate(d)",
        "s = ((f32[4]), f32[4], u32[]) async-start(x), calls=negated\n"
        "u = ((f32[4]), f32[4], u32[]) async-update(s)\nROOT d = f32[4] async-done(u)",
        "s = ((f32[4]), f32[4], u32[]) negate-start(x)\nROOT d = f32[4] negate-done(s)",
        "s = ((f32[4]), f32[4], u32[]) call-start(x), to_apply=negated\n"
        "ROOT d = f32[4] call-done(s)",
        "s = f32[4] all-reduce-start(x), to_apply=add, replica_groups={{0}}\n"
        "d = f32[4] all-reduce-done(s)\nROOT r = f32[4] negate(d)",
    ],
)
def test_halves_of_operations_are_joined(body: str) -> None:
    read = parse(module(body))
    np.testing.assert_array_equal(evaluate(read, [X]), -X)
    np.testing.assert_array_equal(build(read)(X), -X)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "s = (f32[4], f32[4], u32[]) copy-start(x)\n"
            "ROOT g = f32[4] get-tuple-element(s), index=0",
            "does not end in a `copy-done`",
        ),
        ("ROOT d = f32[4] copy-done(x)", "its `copy-start` is not in the same computation"),
        (
            "s = ((f32[4]), f32[3], u32[]) negate-start(x)\nROOT d = f32[3] negate-done(s)",
            "are not a valid `negate`",
        ),
        (
            "s = ((f32[4]), f32[4], u32[]) async-start(x), calls=add\n"
            "ROOT d = f32[4] async-done(s)",
            "`add` takes 2 arguments",
        ),
        (
            "s = ((f32[4]), f32[4], u32[]) shuffle-start(x)\nROOT d = f32[4] shuffle-done(s)",
            "its order is not defined",
        ),
    ],
)
def test_halves_that_do_not_fit_are_refused(body: str, why: str) -> None:
    assert why in str(refused(module(body)))


ONE_DEVICE = [
    "ROOT r = f32[4] all-reduce(x), to_apply=add, replica_groups={}",
    "ROOT r = f32[4] all-gather(x), dimensions={0}, replica_groups={{0}}, channel_id=1",
    "ROOT r = f32[4] all-gather(x), dimensions={0}, replica_groups=[1,1]<=[1]",
    "ROOT r = f32[4] reduce-scatter(x), dimensions={0}, to_apply=add, replica_groups={{0}}",
    "ROOT r = f32[4] collective-broadcast(x), replica_groups={{0}}",
    "ROOT r = f32[4] collective-permute(x), source_target_pairs={{0,0}}",
    "t = (f32[4]) all-to-all(x), replica_groups={{0}}\n"
    "ROOT r = f32[4] get-tuple-element(t), index=0",
    "t = (f32[4], f32[4]) all-reduce(x, x), to_apply=add, replica_groups={{0}}\n"
    "ROOT r = f32[4] get-tuple-element(t), index=1",
]


@pytest.mark.parametrize("body", ONE_DEVICE)
def test_collectives_of_one_device_hand_on_what_they_get(body: str) -> None:
    read = parse(module(body))
    np.testing.assert_array_equal(evaluate(read, [X]), X)
    np.testing.assert_array_equal(build(read)(X), X)


def test_nobody_sends_to_a_device_that_no_pair_names() -> None:
    body = "c = f32[4] collective-permute(x), source_target_pairs={}\np = u32[] partition-id()\n"
    read = parse(module(body + "ROOT t = (f32[4], u32[]) tuple(c, p)"))
    for zeros, number in (evaluate(read, [X]), build(read)(X)):
        np.testing.assert_array_equal(zeros, np.zeros(4, "f4"))
        assert number == 0 and number.dtype == np.uint32


@pytest.mark.parametrize(
    ("body", "header", "why"),
    [
        (
            "ROOT r = f32[4] all-reduce(x), to_apply=add, replica_groups={{0,1}}",
            ", replica_count=3",
            "fit 3 replicas (replica_count=3, num_partitions=1): 2 is in no group",
        ),
        (
            "ROOT r = f32[4] all-reduce(x), to_apply=add, replica_groups=[1,8]<=[8]",
            ", num_partitions=4",
            "they name 7, and there are 1",
        ),
        (
            "ROOT r = f32[4] all-reduce(x), to_apply=add, replica_groups=[3,8]<=[8]",
            "",
            "its replica_groups cannot be read: [3,8]<=[8]",
        ),
        (
            "ROOT r = f32[8] all-gather(x), dimensions={0}, replica_groups={}",
            "",
            "its shapes say that 2 devices exchange values, its groups have 1",
        ),
        (
            "ROOT r = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}",
            ", replica_count=2",
            "its pairs name 1, and there are 1 partitions",
        ),
        (
            "y = f32[<=4] set-dimension-size(x, n), dimensions={0}\n"
            "ROOT r = f32[<=4] all-reduce(y), to_apply=add, replica_groups={}",
            ", replica_count=2",
            "known only at run time",
        ),
    ],
)
def test_groups_that_do_not_fit_the_devices_are_refused(body: str, header: str, why: str) -> None:
    (found,) = refused(module("n = s32[] constant(3)\n" + body, header)).findings
    assert why in found.reason and found.hint


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("f32[2,2]{1,0:T(2,128)}", "tiles"),
        ("f32[2,<=2]{1,0}", "known only at run time"),
    ],
)
def test_bytes_that_lie_nobody_knows_where_are_refused(shape: str, why: str) -> None:
    assert why in str(refused(module(f"ROOT b = {shape} bitcast(x)")))


def test_stochastic_rounding_goes_by_the_random_bits() -> None:
    """The results are those of XLA on a CPU (jax 0.10.2)."""
    text = """HloModule m
ENTRY e { x = f32[9] parameter(0)
 u = u32[9] parameter(1)
 ROOT r = s8[9] stochastic-convert(x, u) }"""
    x = np.array([0.25, -0.25, 1.5, -1.5, 200, -127.5, np.nan, -np.inf, 126.9], np.float32)
    for bits, expected in (
        (0, [1, -1, 2, -2, 127, -128, 0, -128, 127]),
        (1 << 30, [0, 0, 2, -2, 127, -128, 0, -128, 127]),
        ((1 << 32) - 1, [0, 0, 1, -1, 127, -127, 0, -128, 126]),
    ):
        args = [x, np.full(9, bits, np.uint32)]
        assert evaluate(parse(text), args).tolist() == expected
        assert build(parse(text))(*args).tolist() == expected
    with pytest.raises(UnsupportedError, match="signed integers, not for f16"):
        build(parse(text.replace("s8[9]", "f16[9]")))
