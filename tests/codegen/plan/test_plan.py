"""Plans print, survive JSON, and are refused when a slice is out of place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nestwright.codegen.plan.horizontal_fusion import overlaps
from nestwright.codegen.plan.nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    PieceStart,
    Plan,
    WhileThunk,
    accesses,
    check,
    show,
)
from nestwright.codegen.plan.saved.encoding import from_json, to_json
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.ir.dtypes import f32, s32
from nestwright.ir.errors import ArtifactError

X, OUT = BufferSlice("param", 0, 16, 0), BufferSlice("result", 0, 16, 0)
FLAG, STATE = BufferSlice("arena", 64, 1), BufferSlice("arena", 0, 16)
WEIGHT = BufferSlice("constant", 0, 16)
COUNT = BufferSlice("param", 0, 4, 1)
PIECE = replace(WEIGHT, start=PieceStart(COUNT, 3, 16, True))

PLAN = Plan(
    thunks=(
        CopyThunk(X, STATE, "start"),
        WhileThunk(
            (KernelThunk("test", (STATE, FLAG), 1, "ab", "less"),),
            FLAG,
            (KernelThunk("step", (STATE, PIECE, STATE), 1, "cd", "add"),),
            "loop",
        ),
        ConditionalThunk(FLAG, ((CopyThunk(STATE, OUT),), (CopyThunk(X, OUT),)), "pick"),
    ),
    arena_bytes=128,
    constant_bytes=64,
    params=(ArraySpec("x", f32, (4,)), ArraySpec("n", s32, ())),
    results=(ArraySpec("y", f32, (2, 2)),),
    param_tree=(0, (1,)),
    result_tree=0,
)


def test_a_plan_survives_json() -> None:
    assert from_json(json.loads(json.dumps(to_json(PLAN)))) == PLAN


def test_a_plan_prints() -> None:
    assert show(PLAN) == (
        "arena 128 bytes, constants 64 bytes\n"
        "param 0 x: f32[4]\n"
        "param 1 n: s32[]\n"
        "result 0: f32[2,2]\n"
        "copy param0[0:16] -> arena[0:16]  # start\n"
        "while  # loop\n"
        "    call test (arena[0:16]) -> (arena[64:65])  # less\n"
        "  test arena[64:65]\n"
        "    call step (arena[0:16], constant[0:16] + 16 * param1[0:4]) -> (arena[0:16])  # add\n"
        "branch on arena[64:65]  # pick\n"
        "  case 0\n"
        "    copy arena[0:16] -> result0[0:16]  # \n"
        "  case 1\n"
        "    copy param0[0:16] -> result0[0:16]  # \n"
    )


@pytest.mark.parametrize(
    "target",
    [
        BufferSlice("arena", 120, 16),
        BufferSlice("result", 8, 16),
        BufferSlice("result", 0, 16, 1),
        BufferSlice("param", 0, 16),
        BufferSlice("constant", 0, 16),
        BufferSlice("value", 0, 16),
        BufferSlice("arena", -16, 16),
        replace(STATE, start=PieceStart(COUNT, 1, 16, True)),
    ],
)
def test_a_thunk_that_writes_out_of_place_is_refused(target: BufferSlice) -> None:
    with pytest.raises(ArtifactError, match="damaged"):
        check(replace(PLAN, thunks=(CopyThunk(X, target),)))


@pytest.mark.parametrize(
    "start",
    [
        PieceStart(COUNT, 4, 16, True),
        PieceStart(replace(COUNT, offset=4), 3, 16, True),
    ],
)
def test_a_piece_that_may_begin_out_of_place_is_refused(start: PieceStart) -> None:
    with pytest.raises(ArtifactError, match="damaged"):
        check(replace(PLAN, thunks=(CopyThunk(replace(WEIGHT, start=start), STATE),)))


def test_a_piece_is_where_all_of_its_places_are() -> None:
    assert PIECE.reach == 64
    assert overlaps([PIECE], [replace(WEIGHT, offset=48)])
    assert not overlaps([PIECE], [replace(WEIGHT, offset=64)])
    assert accesses(CopyThunk(PIECE, STATE)) == ((PIECE, COUNT), (STATE,))


def damaged(path: list[Any], value: object) -> dict[str, Any]:
    data: Any = json.loads(json.dumps(to_json(PLAN)))
    spot = data
    for step in path[:-1]:
        spot = spot[step]
    spot[path[-1]] = value
    return dict(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["arena_bytes"], -1),
        (["arena_bytes"], 1e3),
        (["params", 0, 1], "f99"),
        (["result_tree"], 3),
        (["thunks", 0, "do"], "jump"),
        (["thunks", 0, "source", 0], "stack"),
        (["thunks", 0, "source", 2], 1 << 70),
        (["thunks", 0, "target", 2], 8),
        (["thunks", 1, "body", 0, "outputs"], 9),
        (["thunks", 1, "body", 0, "args", 1, 4, 1], -1),
        (["thunks", 1, "body", 0, "args", 1, 4, 2], -16),
        (["thunks", 1, "body", 0, "args", 1, 4, 3], 1),
        (["thunks", 1, "body", 0, "args", 1, 4, 0, 2], 3),
        (["thunks", 1, "body", 0, "args", 1, 4], []),
        (
            ["thunks", 1, "body", 0, "args", 1, 4, 0],
            ["arena", 0, 4, 0, [["arena", 0, 4, 0], 1, 1, True]],
        ),
        (["thunks", 2, "branches"], []),
        (["thunks", 2, "selector", 2], 2),
        (["thunks"], None),
    ],
)
def test_damaged_json_is_refused(path: list[Any], value: object) -> None:
    with pytest.raises(ArtifactError):
        from_json(damaged(path, value))


def test_control_flow_that_is_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [{"do": "branch", "selector": ["arena", 0, 1, 0], "branches": [deep], "name": ""}]
    with pytest.raises(ArtifactError, match="too deep"):
        from_json({**to_json(PLAN), "thunks": deep})
