"""Streams, events and captures of the stand-in: what waits, what it waits for, what is refused."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from gpu.stub.calls import ended, failed, good, started
from gpu.stub.control import Stub

cu = pytest.importorskip("cuda.bindings.driver")


class Cell:
    """A byte on the device that is set and read late."""

    def __init__(self) -> None:
        self.address = int(good(cu.cuMemAlloc(1)))

    def set(self, value: int, stream: Any) -> tuple[Any, ...]:
        return tuple(cu.cuMemsetD8Async(self.address, value, 1, stream))

    def copy(self, source: Cell, stream: Any) -> tuple[Any, ...]:
        return tuple(cu.cuMemcpyDtoDAsync(self.address, source.address, 1, stream))

    @property
    def value(self) -> int:
        return ctypes.c_uint8.from_address(self.address).value


BLOCKING, NON_BLOCKING = 0, 1
GLOBAL, THREAD_LOCAL, RELAXED = (
    getattr(cu.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{n}")
    for n in ("GLOBAL", "THREAD_LOCAL", "RELAXED")
)


def test_work_is_done_when_it_is_waited_for(stub: Stub) -> None:
    (stream,) = started(BLOCKING)
    cell = Cell()
    good(cell.set(1, stream))
    assert cell.value == 255
    assert failed(cu.cuStreamQuery(stream)) == "NOT_READY"
    assert cell.value == 255
    good(cu.cuStreamQuery(stream))
    assert cell.value == 1
    stub.patience(3)
    good(cell.set(2, stream))
    assert [int(cu.cuStreamQuery(stream)[0]) for _ in range(4)] == [600, 600, 0, 0]
    for value in 3, 4:  # new work is not yet asked for
        good(cell.set(value, stream))
        assert [int(cu.cuStreamQuery(stream)[0]) for _ in range(2)] == [600, 600]
    ended()


def test_streams_keep_no_order_without_an_event(stub: Stub) -> None:
    first, then = started(NON_BLOCKING, NON_BLOCKING)
    source, target, ordered = Cell(), Cell(), Cell()
    event = good(cu.cuEventCreate(2))
    good(source.set(5, first))
    good(cu.cuEventRecord(event, first))
    good(source.set(6, first))
    good(target.copy(source, then))
    good(cu.cuStreamSynchronize(then))
    assert target.value == 255
    good(cu.cuStreamWaitEvent(then, event, 0))
    good(ordered.copy(source, then))
    good(cu.cuStreamSynchronize(then))
    assert ordered.value == 5  # what comes after the event is not waited for
    ended()


def test_blocking_streams_keep_step_with_the_legacy_stream(stub: Stub) -> None:
    blocking, free = started(BLOCKING, NON_BLOCKING)
    a, b, c = Cell(), Cell(), Cell()
    good(a.set(1, blocking))
    good(b.copy(a, 0))
    good(c.copy(b, blocking))
    good(cu.cuStreamSynchronize(blocking))
    assert c.value == 1
    good(a.set(3, blocking))
    good(b.copy(a, 0))
    good(cu.cuStreamSynchronize(0))
    assert b.value == 3
    good(a.set(2, 0))
    good(b.copy(a, free))
    good(cu.cuStreamSynchronize(free))
    assert b.value == 3
    ended()


def test_events_tell_time_if_they_were_made_for_it(stub: Stub) -> None:
    (stream,) = started(BLOCKING)
    start, end, untimed = (good(cu.cuEventCreate(flags)) for flags in (0, 0, 2))
    assert failed(cu.cuEventElapsedTime(start, end)) == "INVALID_HANDLE"
    for event in start, untimed:
        good(cu.cuEventRecord(event, stream))
    good(Cell().set(1, stream))
    good(cu.cuEventRecord(end, stream))
    assert failed(cu.cuEventElapsedTime(start, end)) == "NOT_READY"
    good(cu.cuEventSynchronize(end))
    assert 0 < good(cu.cuEventElapsedTime(start, end)) < 1
    assert failed(cu.cuEventElapsedTime(untimed, end)) == "INVALID_HANDLE"
    ended()


def test_a_destroyed_handle_is_of_no_use(stub: Stub) -> None:
    (stream,) = started(BLOCKING)
    event = good(cu.cuEventCreate(0))
    good(cu.cuEventDestroy(event))
    assert failed(cu.cuEventRecord(event, stream)) == "INVALID_HANDLE"
    assert "a destroyed event" in stub.reports()[0]
    stub.clear()
    good(cu.cuStreamDestroy(stream))
    assert failed(cu.cuStreamQuery(stream)) == "INVALID_HANDLE"
    assert "a destroyed stream" in stub.reports()[0]
    stub.clear()
    assert stub.live("stream") == stub.live("event") == 0
    ended()


def test_a_graph_does_again_what_was_captured(stub: Stub) -> None:
    work, recorder = started(BLOCKING, NON_BLOCKING)
    a, b = Cell(), Cell()
    good(cu.cuStreamBeginCapture(recorder, RELAXED))
    good(b.copy(a, recorder))
    good(a.set(9, recorder))
    graph = good(cu.cuStreamEndCapture(recorder))
    made = good(cu.cuGraphInstantiate(graph, 0))
    good(cu.cuGraphDestroy(graph))
    good(a.set(4, work))
    for expected in 4, 9:
        good(cu.cuGraphLaunch(made, work))
        good(cu.cuStreamSynchronize(work))
        assert (a.value, b.value) == (9, expected)
    good(cu.cuGraphExecDestroy(made))
    assert stub.live("graph") == stub.live("executable graph") == 0
    ended()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_what_a_capture_forbids_invalidates_it(stub: Stub, mode: int) -> None:
    (stream,) = started(NON_BLOCKING)
    good(cu.cuStreamBeginCapture(stream, (GLOBAL, THREAD_LOCAL, RELAXED)[mode]))
    answer = cu.cuMemAlloc(16)
    if mode == 2:
        good(answer)
        good(cu.cuGraphDestroy(good(cu.cuStreamEndCapture(stream))))
    else:
        assert failed(answer) == "STREAM_CAPTURE_UNSUPPORTED"
        assert failed(cu.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    assert failed(cu.cuStreamEndCapture(stream)) == "ILLEGAL_STATE"
    ended()


def test_a_captured_stream_cannot_be_waited_for(stub: Stub) -> None:
    (stream,) = started(NON_BLOCKING)
    cell = Cell()
    good(cu.cuStreamBeginCapture(stream, RELAXED))
    assert failed(cu.cuStreamSynchronize(stream)) == "STREAM_CAPTURE_UNSUPPORTED"
    assert failed(cell.set(1, stream)) == "STREAM_CAPTURE_INVALIDATED"
    assert failed(cu.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    good(cell.set(1, stream))
    good(cu.cuStreamSynchronize(stream))
    assert cell.value == 1
    ended()


def test_the_legacy_stream_is_taken_while_a_blocking_one_is_captured(stub: Stub) -> None:
    (stream,) = started(BLOCKING)
    cell = Cell()
    good(cu.cuStreamBeginCapture(stream, RELAXED))
    assert failed(cell.set(1, 0)) == "STREAM_CAPTURE_IMPLICIT"
    assert failed(cu.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    ended()


def test_events_carry_a_capture_to_other_streams_and_back(stub: Stub) -> None:
    stream, other, work = started(NON_BLOCKING, NON_BLOCKING, NON_BLOCKING)
    cell, fork, join, outside = Cell(), *(good(cu.cuEventCreate(2)) for _ in range(3))
    good(cu.cuEventRecord(outside, work))
    for joined in False, True:
        good(cu.cuStreamBeginCapture(stream, GLOBAL))
        good(cu.cuEventRecord(fork, stream))
        assert failed(cu.cuEventQuery(fork)) == "CAPTURED_EVENT"
        good(cu.cuStreamWaitEvent(other, fork, 0))
        good(cell.set(3, other))
        if not joined:
            assert failed(cu.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_UNJOINED"
            continue
        good(cu.cuEventRecord(join, other))
        good(cu.cuStreamWaitEvent(stream, join, 0))
        graph = good(cu.cuStreamEndCapture(stream))
    good(cu.cuEventRecord(fork, work))  # it belongs to the capture no more
    good(cu.cuEventSynchronize(fork))
    made = good(cu.cuGraphInstantiate(graph, 0))
    good(cu.cuGraphLaunch(made, work))
    good(cu.cuStreamSynchronize(work))
    assert cell.value == 3
    good(cu.cuStreamBeginCapture(stream, GLOBAL))
    assert failed(cu.cuStreamWaitEvent(stream, outside, 0)) == "STREAM_CAPTURE_ISOLATION"
    assert failed(cu.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    ended()


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_capture_ends_in_the_thread_in_which_it_began(stub: Stub, relaxed: bool) -> None:
    (stream,) = started(NON_BLOCKING)
    context, answers = good(cu.cuCtxGetCurrent()), []
    good(cu.cuStreamBeginCapture(stream, RELAXED if relaxed else THREAD_LOCAL))

    def end() -> None:
        good(cu.cuCtxPushCurrent(context))
        answers.append(cu.cuStreamEndCapture(stream))
        good(cu.cuCtxPopCurrent())

    other = threading.Thread(target=end)
    other.start()
    other.join()
    if relaxed:
        good(cu.cuGraphDestroy(good(answers[0])))
    else:
        assert failed(answers[0]) == "STREAM_CAPTURE_WRONG_THREAD"
        good(cu.cuGraphDestroy(good(cu.cuStreamEndCapture(stream))))
    ended()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_graph_does_first_what_was_captured_last_if_it_may(stub: Stub, ordered: bool) -> None:
    stream, other, work = started(NON_BLOCKING, NON_BLOCKING, NON_BLOCKING)
    a, b = Cell(), Cell()
    fork, made, join = (good(cu.cuEventCreate(2)) for _ in range(3))
    good(cu.cuStreamBeginCapture(stream, RELAXED))
    good(cu.cuEventRecord(fork, stream))
    good(a.set(1, stream))
    good(cu.cuEventRecord(made, stream))
    good(cu.cuStreamWaitEvent(other, made if ordered else fork, 0))
    good(b.copy(a, other))
    good(cu.cuEventRecord(join, other))
    good(cu.cuStreamWaitEvent(stream, join, 0))
    graph = good(cu.cuGraphInstantiate(good(cu.cuStreamEndCapture(stream)), 0))
    good(cu.cuGraphLaunch(graph, work))
    good(cu.cuStreamSynchronize(work))
    assert (a.value, b.value) == (1, 1 if ordered else 255)
    ended()


def test_replaying_a_graph_on_freed_memory_is_a_fault(stub: Stub) -> None:
    (stream,) = started(NON_BLOCKING)
    cell = Cell()
    good(cu.cuStreamBeginCapture(stream, RELAXED))
    good(cell.set(1, stream))
    made = good(cu.cuGraphInstantiate(good(cu.cuStreamEndCapture(stream)), 0))
    good(cu.cuMemFree(cell.address))
    good(cu.cuGraphLaunch(made, stream))
    assert failed(cu.cuStreamSynchronize(stream)) == "ILLEGAL_ADDRESS"
    assert "which was freed" in stub.reports()[0]
    assert failed(cu.cuMemAlloc(1)) == "ILLEGAL_ADDRESS"  # from now on, every call
    stub.clear()
    ended()
