"""The memory plan: two values that are alive at the same step never overlap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.codegen.plan.coalesce import coalesce
from nestwright.codegen.plan.memory import Lifetime, assign, lifetimes, place
from nestwright.codegen.plan.nodes import (
    ALIGNMENT,
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    WhileThunk,
)
from nestwright.ir.arrays import LARGE, PAGE

SIZE = 8


def value(number: int, nbytes: int = SIZE) -> BufferSlice:
    return BufferSlice("value", 0, nbytes, number)


def call(inputs: list[int], outputs: list[int]) -> KernelThunk:
    return KernelThunk("k", tuple(map(value, (*inputs, *outputs))), len(outputs))


def copy(source: int, target: int) -> CopyThunk:
    return CopyThunk(value(source), value(target))


@st.composite
def lives(draw: st.DrawFn) -> dict[int, Lifetime]:
    found = {}
    for v in range(draw(st.integers(0, 40))):
        start = draw(st.integers(0, 30))
        end = start + draw(st.integers(0, 12))
        size = draw(st.integers(0, 500) | st.integers(LARGE - 2, LARGE + 5000))
        found[v] = Lifetime(start, end, size)
    return found


@given(lives())
@settings(max_examples=200, deadline=None)
def test_no_two_live_values_overlap(found: dict[int, Lifetime]) -> None:
    offsets, total = assign(found)
    spans = [(offsets[v], offsets[v] + life.bytes, life) for v, life in found.items()]
    for i, (begin, end, life) in enumerate(spans):
        assert begin % (PAGE if life.bytes >= LARGE else ALIGNMENT) == 0
        assert end <= total
        for other_begin, other_end, other in spans[:i]:
            if life.meets(other) and life.bytes and other.bytes:
                assert end <= other_begin or other_end <= begin


def test_dead_values_give_their_place_to_later_ones() -> None:
    chain = {i: Lifetime(i, i + 1, 100) for i in range(20)}
    _, total = assign(chain)
    assert total == 2 * 128


def test_the_smallest_gap_that_fits_is_taken() -> None:
    found = {
        0: Lifetime(0, 9, 640),
        1: Lifetime(0, 2, 512),
        2: Lifetime(0, 9, 448),
        3: Lifetime(0, 2, 384),
        4: Lifetime(0, 9, 320),
        5: Lifetime(5, 9, 300),
    }
    offsets, _ = assign(found)
    assert offsets[5] == offsets[3]


def test_inputs_and_outputs_of_a_kernel_are_alive_together() -> None:
    found = lifetimes([call([], [0]), call([0], [1])], {0: SIZE, 1: SIZE})
    assert found == {0: Lifetime(0, 1, SIZE), 1: Lifetime(1, 1, SIZE)}


def test_what_a_loop_reads_lives_until_it_ends() -> None:
    loop = WhileThunk((call([0], [1]),), value(1), (call([0], [2]), call([2], [3])))
    found = lifetimes([call([], [0]), loop, call([], [4])], dict.fromkeys(range(5), SIZE))
    # steps: 0 makes value 0; 1 condition; 2 test; 3 and 4 body; 5 end of the loop
    assert found[0] == Lifetime(0, 5, SIZE)
    assert found[1] == Lifetime(1, 2, SIZE)
    assert found[2] == Lifetime(3, 4, SIZE)
    assert found[4] == Lifetime(6, 6, SIZE)


def test_what_a_branch_reads_lives_until_the_branches_end() -> None:
    branches: tuple[tuple[Thunk, ...], ...] = ((call([0], [2]),), (call([1], [2]),))
    thunks = [call([], [0, 1, 3]), ConditionalThunk(value(3), branches), call([2], [4])]
    found = lifetimes(thunks, dict.fromkeys(range(5), SIZE))
    assert found[0].end == found[1].end == 4
    assert found[2] == Lifetime(2, 5, SIZE)


def sizes(n: int) -> dict[int, int]:
    return dict.fromkeys(range(n), SIZE)


def test_coalesce_makes_the_source_at_the_target() -> None:
    before = (call([], [0]), copy(0, 1), call([1], [2]))
    assert coalesce(before, sizes(3), frozenset()) == (call([], [1]), call([1], [2]))


def test_coalesce_keeps_a_copy_whose_source_is_read_later() -> None:
    before = (call([], [0]), copy(0, 1), call([0, 1], [2]))
    assert coalesce(before, sizes(3), frozenset()) == before


def test_coalesce_keeps_a_copy_whose_target_is_read_meanwhile() -> None:
    before = (call([], [0, 1]), call([1], [2]), copy(0, 1), call([1], [3]))
    assert coalesce(before, sizes(4), frozenset()) == before


def test_coalesce_keeps_a_copy_of_a_value_that_has_a_home() -> None:
    before = (call([], [0]), copy(0, 1))
    assert coalesce(before, sizes(2), frozenset({0, 1})) == before


def test_coalesce_keeps_a_copy_into_a_part_of_a_value() -> None:
    before = (call([], [0]), copy(0, 1), call([1], [2]))
    assert coalesce(before, {**sizes(3), 1: 2 * SIZE}, frozenset()) == before


def test_coalesce_in_a_loop_writes_the_next_state_in_place() -> None:
    body = (call([0], [2]), call([2], [3]), copy(3, 0))
    before = (call([], [0]), WhileThunk((call([0], [1]),), value(1), body), call([0], [4]))
    after = (call([0], [2]), call([2], [0]))
    (_, loop, _) = coalesce(before, sizes(5), frozenset())
    assert isinstance(loop, WhileThunk)
    assert loop.body == after


def test_coalesce_in_a_loop_keeps_what_the_next_turn_needs() -> None:
    body = (call([5], [2]), call([0], [3]), copy(2, 0))
    before = (call([], [0, 5]), WhileThunk((call([0], [1]),), value(1), body), call([0], [4]))
    (_, loop, _) = coalesce(before, sizes(6), frozenset())
    assert isinstance(loop, WhileThunk)
    assert loop.body == body


def in_place(source: int, target: int, *others: int) -> KernelThunk:
    args = tuple(map(value, (source, *others, target)))
    return KernelThunk("k", args, 1, in_place=(0,))


def test_an_output_takes_the_place_of_an_input_that_dies() -> None:
    before = (call([], [0]), in_place(0, 1), call([1], [2]))
    first, second, third = coalesce(before, sizes(3), frozenset())
    assert (first, third) == (call([], [1]), call([1], [2]))
    assert second == in_place(1, 1)


def test_an_output_never_takes_the_place_of_an_input_that_is_needed_later() -> None:
    before = (call([], [0]), in_place(0, 1), call([0, 1], [2]))
    assert coalesce(before, sizes(3), frozenset()) == before


def test_an_output_never_takes_the_place_of_an_input_read_in_other_ways_too() -> None:
    before = (call([], [0]), in_place(0, 1, 0), call([1], [2]))
    assert coalesce(before, sizes(3), frozenset()) == before


def test_a_kernel_with_a_workspace_works_in_place() -> None:
    """The result is the first that it writes, the workspace the second."""
    kernel = KernelThunk("k", (value(0), value(1), value(2)), 2, in_place=(0,))
    before = (call([], [0]), kernel, call([1], [3]))
    _, second, third = coalesce(before, sizes(4), frozenset())
    assert (second, third) == (kernel._replace(args=(value(1), value(1), value(2))), call([1], [3]))


def test_a_loop_that_works_in_place_needs_no_copy() -> None:
    body = (in_place(0, 2), copy(2, 0))
    before = (call([], [0]), WhileThunk((call([0], [1]),), value(1), body), call([0], [4]))
    (_, loop, _) = coalesce(before, sizes(5), frozenset())
    assert isinstance(loop, WhileThunk)
    assert loop.body == (in_place(0, 0),)


def test_a_loop_whose_state_is_read_in_other_ways_too_needs_a_copy() -> None:
    body = (in_place(0, 2, 0), copy(2, 0))
    before = (call([], [0]), WhileThunk((call([0], [1]),), value(1), body), call([0], [4]))
    (_, loop, _) = coalesce(before, sizes(5), frozenset())
    assert isinstance(loop, WhileThunk)
    assert loop.body == body


def test_an_output_takes_the_place_of_one_input_at_most() -> None:
    step = KernelThunk("k", (value(2), value(0), value(3)), 1, in_place=(0, 1))
    body = (call([], [2]), step, copy(3, 0))
    before = (call([], [0]), WhileThunk((call([0], [1]),), value(1), body), call([0], [4]))
    (_, loop, _) = coalesce(before, sizes(5), frozenset())
    assert isinstance(loop, WhileThunk)
    assert loop.body[1] == step._replace(args=(value(2), value(0), value(0)))


class Programs:
    """Random thunks of the form that ``sequence`` makes: values made once, states copied to."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.count = 0

    def fresh(self) -> int:
        self.count += 1
        return self.count - 1

    def some(self, known: list[int]) -> int:
        return self.draw(st.sampled_from(known[-4:]))

    def block(self, known: list[int], depth: int) -> tuple[list[Thunk], list[int]]:
        """Thunks that may read ``known``, and the values known after them."""
        thunks: list[Thunk] = []
        known = list(known)
        for _ in range(self.draw(st.integers(1, 4))):
            kind = self.draw(st.sampled_from(["call", "call", "call", "while", "branch"]))
            if kind == "call" or depth == 0:
                inputs = [self.some(known) for _ in range(self.draw(st.integers(1, 3)))]
                places = [i for i in range(len(inputs)) if self.draw(st.integers(0, 3))]
                made = [self.fresh()]
                args = tuple(map(value, (*inputs, *made)))
                name = f"k{self.count}"
                thunks.append(KernelThunk(name, args, 1, in_place=tuple(places)))
            elif kind == "while":
                made = self.loop(known, depth, thunks)
            else:
                made = self.branch(known, depth, thunks)
            known += made
        return thunks, known

    def loop(self, known: list[int], depth: int, thunks: list[Thunk]) -> list[int]:
        state = [self.fresh() for _ in range(self.draw(st.integers(1, 3)))]
        thunks += [copy(self.some(known), s) for s in state]
        flag = self.fresh()
        body, after = self.block(state, depth - 1)
        following = [self.some(after) for _ in state]
        saved: list[Thunk] = []
        moves: list[Thunk] = []
        for source, target in zip(following, state, strict=True):
            if source in state and source != target:
                kept = self.fresh()
                saved.append(copy(source, kept))
                source = kept
            if source != target:
                moves.append(copy(source, target))
        test = (call([self.some(state)], [flag]),)
        thunks.append(WhileThunk(test, value(flag), (*body, *saved, *moves)))
        return state

    def branch(self, known: list[int], depth: int, thunks: list[Thunk]) -> list[int]:
        flag, result = self.some(known), [self.fresh() for _ in range(2)]
        branches = []
        for _ in range(2):
            inner, after = self.block(known, depth - 1)
            branches.append((*inner, *(copy(self.some(after), r) for r in result)))
        thunks.append(ConditionalThunk(value(flag), tuple(branches)))
        return result


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Thunk], int, frozenset[int]]:
    made = Programs(draw)
    start = [call([], [made.fresh()]), call([], [made.fresh()])]
    thunks, known = made.block([0, 1], 2)
    results = [made.fresh() for _ in range(2)]
    moves = [copy(made.some(known), r) for r in results]
    return [*start, *thunks, *moves], made.count, frozenset(results)


def meanings(
    thunks: tuple[Thunk, ...], places: dict[tuple[str, int], object], seen: list[object], turn: int
) -> None:
    """Run thunks on symbols: what every kernel is called with, and what stands where after it."""
    for thunk in thunks:
        match thunk:
            case KernelThunk(symbol=symbol, args=args):
                at = [(s.memory, s.offset if s.memory == "arena" else s.index) for s in args]
                term = hash(
                    (symbol, tuple(places.get(a) for a in at[:-1]), turn if not at[:-1] else 0)
                )
                places[at[-1]] = term
                seen.append(term)
            case CopyThunk(source=source, target=target):
                a, b = (
                    (s.memory, s.offset if s.memory == "arena" else s.index)
                    for s in (source, target)
                )
                places[b] = places.get(a)
            case WhileThunk(condition=condition, body=body):
                for _ in range(2):
                    meanings(condition, places, seen, turn)
                    meanings(body, places, seen, turn)
                meanings(condition, places, seen, turn)
            case ConditionalThunk(branches=branches):
                meanings(branches[turn % 2], places, seen, turn)


@given(programs(), st.integers(0, 1))
@settings(max_examples=120, deadline=None)
def test_sharing_places_never_changes_what_is_computed(
    program: tuple[list[Thunk], int, frozenset[int]], turn: int
) -> None:
    thunks, count, results = program
    homes = {v: BufferSlice("result", 0, SIZE, n) for n, v in enumerate(sorted(results))}
    kept = coalesce(thunks, sizes(count), results)
    lives = lifetimes(kept, sizes(count))
    offsets, _ = assign({v: life for v, life in lives.items() if v not in homes})
    arena = {v: BufferSlice("arena", at, SIZE) for v, at in offsets.items()}
    plans = tuple(thunks), place(kept, homes | arena)
    found = []
    for plan in plans:
        places: dict[tuple[str, int], object] = {}
        seen: list[object] = []
        meanings(plan, places, seen, turn)
        ends = [
            places[("result", n)] if plan is plans[1] else places[("value", v)]
            for n, v in enumerate(sorted(results))
        ]
        found.append((seen, ends))
    assert found[0] == found[1]


def test_place_keeps_offsets_inside_a_value() -> None:
    thunk = CopyThunk(BufferSlice("value", 16, 4, 0), value(1, 4))
    where = {0: BufferSlice("arena", 64, 32), 1: BufferSlice("result", 0, 4, 2)}
    (placed,) = place([thunk], where)
    assert placed == CopyThunk(BufferSlice("arena", 80, 4), BufferSlice("result", 0, 4, 2))


@pytest.mark.parametrize("nbytes", [0, 1, 64, 65])
def test_the_arena_is_padded_to_the_alignment(nbytes: int) -> None:
    _, total = assign({0: Lifetime(0, 0, nbytes)})
    assert total == -(-nbytes // ALIGNMENT) * ALIGNMENT
