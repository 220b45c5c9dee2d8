"""A fleet whose workers lose, repeat, delay and reorder results, refuse, hang, come and go."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from nestwright.autotune.fleet import work
from nestwright.autotune.fleet.dask import DaskPool
from nestwright.autotune.fleet.fleet import FAULTS, PATIENCE, TRIES, Fleet
from nestwright.autotune.fleet.identity import examine, question, travelling
from nestwright.autotune.fleet.messages import (
    BadReply,
    Reply,
    Request,
    decode_reply_of,
    decode_request,
    encode_reply,
    encode_request,
)
from nestwright.autotune.fleet.work import perform
from nestwright.autotune.fleet.worker_pool import ANYONE, Answer, Cancel, Done, ExecutorPool
from nestwright.autotune.fleet.workers import AHEAD, ALLOWANCE, Assignment
from nestwright.autotune.measure.protocol import Job, Outcome, Underway
from nestwright.ir.errors import ArgumentError, FleetError
from nestwright.ir.target import Target

from .pools import (
    CODE,
    MACHINE,
    BadExecutor,
    Clock,
    answer,
    cost,
    differing,
    identity,
    job,
    outcomes,
)

QUESTION = Request(CODE, "cpu", "cpu-t1")
ONE_BY_ONE = 0.05  # seconds that a look at the clock takes


class Named:
    """Workers by name, that do what ``acts`` says when a request comes; None: never answer."""

    def __init__(self, **acts: Callable[..., bytes] | None) -> None:
        self.acts = acts
        self.given: list[tuple[str, int | None]] = []
        self.cancelled: list[int | None] = []
        self.units = 1
        self.lost = False
        self.late: list[Callable[[], object]] = []

    def workers(self) -> Mapping[str, int]:
        if self.lost:
            raise FleetError("the scheduler is gone", "connection closed")
        return dict.fromkeys(self.acts, self.units)

    def title(self, worker: str) -> str:
        return f"worker {worker}"

    def submit(self, worker: str, packet: bytes, models: tuple[bytes, ...], done: Done) -> Cancel:
        told = decode_request(packet).job
        self.given.append((worker, told and told.number))
        act = self.acts.get(worker)
        if act is not None:
            try:
                found: Answer = act(packet, *models)
            except Exception as e:
                found = e
            done(found)
        else:
            self.late.append(lambda: done(answer(packet, *models)))
        return lambda: self.cancelled.append(told and told.number)

    def close(self) -> None:
        self.acts = {}


def fleet(workers: object, step: float = ONE_BY_ONE, request: Request = QUESTION) -> Fleet:
    return Fleet(workers, request, Clock(step), nap=0.0)  # type: ignore[arg-type]


def results(made: Fleet, count: int) -> dict[int, Outcome]:
    found: dict[int, Outcome] = {}
    for done, told in made.run(map(job, range(count))):
        assert done.number not in found, "a result is counted twice"
        found[done.number] = told[0]
    return found


def greeted_only(packet: bytes, *models: bytes) -> bytes:
    if decode_request(packet).job is not None:
        raise BrokenPipeError("it died")
    return answer(packet)


@pytest.mark.parametrize("seed", range(8))
def test_bad_treatment_loses_nothing_and_counts_nothing_twice(seed: int) -> None:
    executor = BadExecutor(seed)
    with fleet(ExecutorPool(executor), step=1.0) as made:
        found = results(made, 40)
    assert found == {n: outcomes(job(n))[0] for n in range(40)}
    assert min(executor.fates[k] for k in ("lost", "cancelled", "held", "answered")) > 0


def test_a_job_that_everybody_loses_is_given_up() -> None:
    executor = BadExecutor(0)
    with fleet(ExecutorPool(executor), step=1.0) as made:
        executor.lossy = 1.0
        with pytest.raises(FleetError, match="do not answer"):
            results(made, 40)
    workers = Named(a=greeted_only)
    with fleet(workers) as made, pytest.raises(FleetError, match="worker a: BrokenPipeError"):
        results(made, 1)


def test_workers_that_die_with_a_job_are_blamed_on_it() -> None:
    class Mortal(Named):
        def submit(
            self, worker: str, packet: bytes, models: tuple[bytes, ...], done: Done
        ) -> Cancel:
            told = decode_request(packet).job
            if told is not None and told.number == 3:
                self.acts.pop(worker)
                self.acts[f"{worker}+"] = answer
                self.given.append((worker, 3))
                return lambda: None
            return super().submit(worker, packet, models, done)

    workers = Mortal(a=answer, b=answer)
    with fleet(workers) as made:
        found = results(made, 8)
    assert [n for n, o in found.items() if o.status != "ok"] == [3]
    assert found[3].status == "crash" and "left" in found[3].note
    assert sum(n == 3 for _, n in workers.given) == TRIES


def test_a_job_that_waits_behind_a_deadly_one_is_not_blamed() -> None:
    class Fatal(Named):
        def submit(
            self, worker: str, packet: bytes, models: tuple[bytes, ...], done: Done
        ) -> Cancel:
            told = decode_request(packet).job
            if told is not None and (worker, 3) in self.given:  # the next one comes, and it dies
                self.acts = {f"{worker}+": answer}
                self.given.append((worker, told.number))
                return lambda: None
            if told is not None and told.number == 3:
                self.given.append((worker, 3))
                return lambda: None
            return super().submit(worker, packet, models, done)

    workers = Fatal(a=answer)
    with fleet(workers) as made:
        found = results(made, 8)
    assert [n for n, o in found.items() if o.status != "ok"] == [3]
    assert sum(n == 4 for _, n in workers.given) > TRIES


def test_faults_count_against_a_worker_only_in_succession() -> None:
    failed: set[int] = set()

    def act(packet: bytes, *models: bytes) -> bytes:
        told = decode_request(packet).job
        if told is not None and told.number % 3 == 2 and told.number not in failed:
            failed.add(told.number)
            raise OSError("no space left, for a moment")
        return answer(packet, *models)

    with fleet(Named(a=act)) as made:
        assert len(results(made, 18)) == 18
    assert len(failed) > FAULTS


def test_a_silent_worker_gets_nothing_more_and_its_job_is_done_elsewhere() -> None:
    workers = Named(a=answer, b=answer)
    with fleet(workers, step=1.0) as made:
        assert len(results(made, 4)) == 4
        workers.acts["b"] = None
        assert len(results(made, 30)) == 30
        stuck = [n for w, n in workers.given[6:] if w == "b"]
        assert 0 < len(stuck) <= 1 + AHEAD
        count = len(workers.late)
        for late in workers.late:  # it wakes up, and says what nobody waits for
            late()
        assert len(results(made, 10)) == 10
        assert count == len(stuck)


def test_a_worker_that_leaves_has_its_jobs_done_by_one_that_comes() -> None:
    workers = Named(a=answer, b=None)
    with fleet(workers) as made:
        workers.acts["b"] = answer
        running = made.run(map(job, range(12)))
        found = [next(running)[0].number]
        workers.acts = {"c": answer}
        found += [done.number for done, _ in running]
        assert workers.cancelled == [None], "what the one that left was asked"
    assert sorted(found) == list(range(12))
    assert ("c", None) in workers.given


def test_without_any_worker_it_waits_and_then_says_so() -> None:
    workers = Named(a=answer)
    clock, seen = Clock(1.0), []
    with Fleet(workers, QUESTION, clock, nap=0.0) as made:
        running = made.run(map(job, range(12)), watch=lambda u: seen.append(u))
        next(running)
        workers.acts = {}
        began = clock.now
        with pytest.raises(FleetError, match="no worker"):
            list(running)
        assert clock.now - began >= PATIENCE
    assert any("waiting for others" in text for u in seen for text in u.news)
    with pytest.raises(FleetError, match="no worker to measure on"):
        fleet(Named()).__enter__()


def test_a_scheduler_that_vanishes_is_one_error() -> None:
    workers = Named(a=answer)
    with fleet(workers) as made, pytest.raises(FleetError, match="scheduler is gone"):
        for _ in made.run(map(job, range(12))):
            workers.lost = True


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (differing(machine="znver2 16K"), "another kind of machine"),
        (lambda p, *m: encode_reply(Reply(identity(), "it runs nestwright 9")), "nestwright 9"),
        (lambda p, *m: b"{}", "BadReply"),
        (lambda p, *m: p, "BadReply"),
    ],
)
def test_a_worker_that_does_not_fit_is_left_out_by_name(other, why: str) -> None:
    workers, news = Named(good=answer, bad=other), []
    request = Request(CODE, "cpu", "cpu-t1", MACHINE)

    def watch(at: Underway) -> None:
        news.extend(at.news)
        assert "1 left out" in at.workers

    with fleet(workers, request=request) as made:
        found = [j.number for j, _ in made.run(map(job, range(6)), watch=watch)]
    assert sorted(found) == list(range(6))
    assert [n for w, n in workers.given if w == "bad"] == [None]
    assert any(text.startswith("worker bad is left out") and why in text for text in news)
    with pytest.raises(FleetError, match=why):
        fleet(Named(bad=other), request=request).__enter__()


def test_an_executor_with_some_workers_that_do_not_fit() -> None:
    turn = iter(range(10**6))
    strange = differing(name="x", machine="other")

    def mixed(packet: bytes, *models: bytes) -> bytes:
        return (strange if next(turn) % 3 == 1 else answer)(packet, *models)

    with ThreadPoolExecutor(1) as pool:
        request = Request(CODE, "cpu", "cpu-t1", MACHINE)
        with Fleet(ExecutorPool(pool, perform=mixed), request, nap=0.01) as made:
            assert results(made, 9) == {n: outcomes(job(n))[0] for n in range(9)}
        workers = ExecutorPool(pool, perform=strange)
        with pytest.raises(FleetError, match=r"no worker .* fits: it is another kind"):
            Fleet(workers, request, nap=0.01).__enter__()


def test_a_broken_executor_and_one_that_is_none() -> None:
    class Broken(BadExecutor):
        def submit(self, fn, /, *args, **kwargs) -> Future[bytes]:
            future: Future[bytes] = Future()
            future.set_exception(BrokenExecutor("a process ended"))
            return future

    with pytest.raises(FleetError, match="a process ended"):
        fleet(ExecutorPool(Broken(0))).__enter__()
    with ThreadPoolExecutor(1) as pool:
        pass
    with pytest.raises(FleetError, match="takes no more jobs"):
        fleet(ExecutorPool(pool)).__enter__()
    with pytest.raises(ArgumentError, match="Executor"):
        ExecutorPool("tcp://127.0.0.1:8786")  # type: ignore[arg-type]


def test_leaving_early_cancels_what_is_out() -> None:
    workers = Named(a=answer)
    with fleet(workers) as made:
        workers.acts["a"] = None
        assert list(made.run(map(job, range(9)), until=5.0)) == []
        assert workers.cancelled == [1], "what has not begun"
    assert len(workers.cancelled) >= 1 + AHEAD
    assert not workers.acts, "the pool is closed"


def test_a_straggler_does_not_block_a_round() -> None:
    workers, clock = Named(slow=answer, a=answer), Clock(0.2)
    with Fleet(workers, QUESTION, clock, nap=0.0) as made:
        results(made, 8)
        workers.acts["slow"] = None
        workers.given.clear()
        began = clock.now
        assert len(results(made, 6)) == 6
        assert clock.now - began < ALLOWANCE, "an idle worker does not wait for its limit"
        again = Counter(n for _, n in workers.given)
        assert max(again.values()) == 2, "those of the slow one, and no other"


def greeting(rate: float, stream: float) -> Callable[..., bytes]:
    def act(packet: bytes, *models: bytes) -> bytes:
        if decode_request(packet).job is not None:
            return answer(packet)
        return encode_reply(Reply(identity(), "", (), rate, stream))

    return act


def test_peaks_are_the_highest_of_any_worker() -> None:
    workers = Named(a=greeting(3.0, 1.0), b=greeting(1.0, 2.0))
    with fleet(workers) as made:
        results(made, 4)
        assert made.peaks == (3.0, 2.0)


def test_a_worker_may_get_more_devices() -> None:
    workers = Named(a=answer)
    with fleet(workers) as made:
        results(made, 2)
        assert made.slots == 1
        workers.units = 3
        results(made, 2)
        assert made.slots == 3


def test_an_executor_whose_workers_refuse_is_asked_less_and_less_often() -> None:
    clock, asked = Clock(0.001), []

    def refuse(packet: bytes, *models: bytes) -> bytes:
        if decode_request(packet).job is None:
            return answer(packet)
        asked.append(clock.now)
        return encode_reply(Reply(identity(), "it runs something else"))

    pool = Named(**{ANYONE: refuse})
    with Fleet(pool, QUESTION, clock, nap=0.0) as made, pytest.raises(FleetError, match="fits"):
        results(made, 1)
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps[0] < 0.1 and gaps[-1] >= 1.0


def test_models_travel_with_their_race(tmp_path, monkeypatch) -> None:
    got: list[tuple[bytes, ...]] = []

    def record(packet: bytes, *models: bytes) -> bytes:
        got.append(models)
        return answer(packet)

    places = [tmp_path / "a.nw", tmp_path / "b.nw"]
    for n, place in enumerate(places):
        place.write_bytes(bytes([n]) * 9)
    base = job(0, candidates=2)
    pairs = zip(base.candidates, places, strict=True)
    given = tuple(type(c)(c.sketch, c.decisions, bundle=str(p)) for c, p in pairs)
    race = Job(0, "models", "key", "", "", "cpu", given, "")
    with fleet(Named(a=record)) as made:
        ((_, told),) = made.run([race])
        assert [o.status for o in told] == ["ok", "ok"]
        with monkeypatch.context() as patch:
            patch.setattr("nestwright.autotune.fleet.workers.LARGEST", 17)
            ((_, told),) = made.run([race])
        assert told[0].status == "invalid" and "are sent to a worker" in told[0].note
        places[1].unlink()
        ((_, told),) = made.run([race])
    assert got[1] == (bytes(9), b"\1" * 9)
    assert told[0].status == "invalid" and "b.nw" in told[0].note


def test_messages_come_back_as_they_were() -> None:
    request = Request(CODE, "cpu -threads=1", "d", MACHINE, "{}", job(7, candidates=2))
    assert decode_request(encode_request(request)) == request
    assert request.job is not None
    reply = Reply(identity(), "", outcomes(request.job), 1e9, math.pi)
    assert decode_reply_of(encode_reply(reply), 2) == reply
    assert cost(request.job.candidates[0]) != cost(request.job.candidates[1])
    for bad in (
        b"",
        b"[]",
        "text",
        encode_reply(reply)[:-9],
        b"[" * 100_000,
        encode_reply(reply).replace(b'"rate": 1000000000.0', b'"rate": 1' + b"0" * 400),
        encode_reply(reply).replace(b'\\"runs\\":[', b'\\"runs\\":' + b"[" * 100_000),
        None,
        encode_reply(Reply(identity())),
    ):
        with pytest.raises(BadReply):
            decode_reply_of(bad, 2)
    with pytest.raises(ValueError, match="protocol"):
        decode_request(encode_request(request).replace(b'"protocol": 1', b'"protocol": 2'))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"code": "nestwright 9.9 (0)"}, "it runs nestwright .*, the tuner nestwright 9.9"),
        ({"device": "cpu-x86_64-other-t1"}, "means .* there, cpu-x86_64-other-t1 here"),
        ({"spec": "cpu -mcpu=nothing"}, "unknown processor"),
        ({"machine": "znver9 1K"}, "another kind of machine"),
    ],
)
def test_a_worker_refuses_what_it_is_not(changed: dict[str, str], why: str) -> None:
    mine = question(Target.parse("cpu -threads=1"))
    assert examine(mine)[1] == ""
    request = replace(mine, **changed)
    assert re.search(why, examine(request)[1])
    reply = decode_reply_of(perform(encode_request(request)), 3)
    assert re.search(why, reply.refusal) and not reply.outcomes


class Client:
    """A client of a cluster, as far as a pool uses it."""

    status, scheduler = "running", None

    def __init__(self, **resources: dict[str, float]) -> None:
        self.resources = resources
        self.sent: list[dict[str, object]] = []

    def scheduler_info(self) -> dict[str, object]:
        return {"workers": {n: {"resources": r} for n, r in self.resources.items()}}

    def submit(self, function: object, *args: object, **how: object) -> Future[bytes]:
        self.sent.append(how)
        return Future()


def test_a_cluster_lends_the_workers_that_offer_the_resource() -> None:
    client = Client(a={"nestwright-cpu": 2.0}, b={}, c={"nestwright-cuda": 1.0})
    pool = DaskPool(client, "nestwright-cpu")  # type: ignore[arg-type]
    assert pool.workers() == {"a": 2}
    pool.submit("a", b"", (), lambda _: None)
    (how,) = client.sent
    assert how["workers"] == ["a"] and how["allow_other_workers"] is False
    assert how["resources"] == {"nestwright-cpu": 1}, "a unit of it for each request"


def test_a_target_travels_with_its_threads() -> None:
    here = Target.parse("cpu")
    assert travelling(here) == f"cpu -threads={here.threads}"
    assert travelling(Target.parse("cpu -threads=3")) == "cpu -threads=3"
    assert travelling(Target.parse("cuda -arch=sm_90")) == "cuda -arch=sm_90"


def test_a_seat_that_a_job_leaves_by_an_error_is_given_up_in_time(monkeypatch, tmp_path) -> None:
    """A worker whose disk is full keeps no child, and no core, for ever."""
    monkeypatch.setattr(work, "IDLE", 0.0)
    monkeypatch.setattr(work, "cache_folder", lambda: tmp_path)
    with pytest.raises(OSError, match="full"), work._taken(1, "") as seat:
        raise OSError("the disk is full")
    assert seat.timer is not None
    seat.timer.join()
    assert seat.gone and seat not in work._seats
    core, lock = work._core()
    os.close(lock)
    assert core == min(os.sched_getaffinity(0)), "the first one is free again"


def test_a_child_of_other_settings_is_replaced(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(work, "cache_folder", lambda: tmp_path)
    with work._taken(2, "") as first:
        pass
    with work._taken(2, "") as again:
        assert again is first
    for threads, libraries in ((2, "{}"), (1, "{}")):
        with work._taken(threads, libraries) as other:
            assert other is not first and first.gone
        first = other
    work.release()
    assert first.gone


@pytest.mark.parametrize(("silent", "status"), [(True, "timeout"), (False, "crash")])
def test_a_job_that_nobody_finishes_was_slow_or_deadly(silent: bool, status: str) -> None:
    lost = Assignment(job(0, candidates=2), lost=["a left", "a left", "b left"], silent=silent)
    _, told = lost.failed()
    assert [o.status for o in told] == [status] * 2
    assert told[0].note == "no worker finished it: a left; b left"


def test_reference_results_are_kept_by_task_inputs_and_target(monkeypatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(work, "serve", lambda _, given: kept.append(given.reference))
    same = job(0)
    others = (replace(same, key="other"), replace(same, seed=1))
    for given in (same, job(1), *others):
        work._measured(None, QUESTION, given, ())  # type: ignore[arg-type]
    work._measured(None, replace(QUESTION, spec="cpu -threads=2"), same, ())  # type: ignore[arg-type]
    assert kept[0] == kept[1], "of one task, whatever the candidate"
    assert len(set(kept)) == 4


def test_a_worker_has_files_of_its_own_and_no_model_after_its_race(monkeypatch) -> None:
    seen: list[Path] = []

    def serve(worker: object, job: Job) -> tuple[Outcome, ...]:
        seen.extend(Path(c.bundle) for c in job.candidates)
        assert {p.parent for p in (*seen, Path(job.reference))} == {work._folder().path}
        assert [p.read_bytes() for p in seen] == [b"a", b"b"]
        return ()

    monkeypatch.setattr(work, "serve", serve)
    work._measured(None, QUESTION, job(0, candidates=2), [b"a", b"b"])  # type: ignore[arg-type]
    assert len(seen) == 2 and not any(p.exists() for p in seen)
