"""A cluster of processes on this machine, whose workers are killed in the middle."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nestwright.autotune.fleet import dask, work
from nestwright.autotune.fleet.dask import Certificates, DaskPool, checked, connect
from nestwright.autotune.fleet.fleet import Fleet
from nestwright.autotune.fleet.identity import question
from nestwright.autotune.log.journal import read
from nestwright.cli.main import main
from nestwright.ir.errors import ArgumentError, FleetError

from .test_tuning import MODEL, TARGET, Local, found, tuned

distributed = pytest.importorskip("distributed", reason="the fleet extra is not installed")

RESOURCE = "nestwright-cpu"
PATIENCE = 60.0
pytestmark = pytest.mark.filterwarnings("default")  # those of Dask are its own


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


class Cluster:
    """A scheduler in this process, and workers on loopback, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scheduler = distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", protocol="tcp"
        )
        self.address = self.scheduler.scheduler_address
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, name: str) -> None:
        """Start a worker."""
        folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        own = {"NESTWRIGHT_MEASURE_LOCK": str(self.folder / "lock")}
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, *options]
        self.workers[name] = subprocess.Popen(
            [*command, "--resources", f"{RESOURCE}=1"],
            env=os.environ | own | {"PYTHONPATH": os.pathsep.join(folders)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )

    def kill(self, name: str) -> None:
        """Kill a worker in the middle of what it does."""
        killed = self.workers.pop(name)
        killed.send_signal(signal.SIGKILL)
        killed.wait()

    def pool(self, count: int, perform: Callable[..., bytes] = work.perform) -> DaskPool:
        """Return the pool, once it has some workers."""
        client = distributed.Client(self.address, set_as_default=False)
        client.wait_for_workers(count, timeout=PATIENCE) if count else None
        return DaskPool(client, RESOURCE, perform)

    def close(self) -> None:
        """End all."""
        for name in list(self.workers):
            self.kill(name)
        self.scheduler.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.add("w1")
    made.add("w2")
    yield made
    made.close()


def slow_answer() -> Callable[..., bytes]:
    """Return what answers after a while; it travels with its code, unlike this file."""

    def answer(packet: bytes, *models: bytes) -> bytes:
        import time as clock

        import pools  # of this folder, as workers find it

        clock.sleep(0.02)
        return bytes(pools.answer(packet, *models))

    return answer


def test_workers_that_are_killed_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    pool = cluster.pool(2, slow_answer())
    local, far = tmp_path / "local.jsonl", tmp_path / "far.jsonl"
    tuned(local, Local())
    deaths, done = {4: "w1", 12: "w2"}, 0

    class Killing(Fleet):
        def run(self, jobs, until=1e18, watch=None):
            nonlocal done
            for told in super().run(jobs, until, watch):
                done += 1
                if name := deaths.pop(done, ""):
                    cluster.kill(name)
                    if name == "w1":
                        cluster.add("w3")
                yield told

    with Killing(pool, question(TARGET)) as fleet:
        assert tuned(far, fleet).stopped == "exhausted"
    assert not deaths
    assert found(far) == found(local)


def test_a_worker_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its models are never taken, and it is never released: who waits goes on, and may cancel."""
    monkeypatch.setattr(dask, "TELL", 0.1)
    taken, answers = threading.Event(), queue.SimpleQueue[object]()

    class Hanging:
        status = "running"

        def scheduler_info(self) -> dict[str, object]:
            return {"workers": {"w": {"resources": {RESOURCE: 1}}}}

        def run(self, *_: object, **__: object) -> None:
            assert taken.wait(PATIENCE)

        def close(self, **_: object) -> None:
            pass

        def scatter(self, models: list[bytes], **_: object) -> list[bytes]:
            assert taken.wait(PATIENCE)
            return models

        def submit(self, *_: object, **__: object) -> None:
            raise AssertionError("it was cancelled")

    pool = DaskPool(Hanging(), RESOURCE)
    cancel = pool.submit("w", b"request", (b"model",), answers.put)
    cancel()
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < PATIENCE / 2
    taken.set()
    assert "cancelled" in str(answers.get(timeout=PATIENCE))


def test_the_command_tunes_there(
    cluster: Cluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, log = tmp_path / "dots.hlo", tmp_path / "log.jsonl"
    model.write_text(MODEL)
    cluster.pool(1).close()
    given = ["tune", str(model), "--target", "cpu -threads=1", "--trials", "2", "--log", str(log)]
    assert main([*given, "--scheduler", cluster.address.removeprefix("tcp://")]) == 0
    told = capfd.readouterr()
    assert " worker" in told.err and "2 trials measured" in told.out
    assert [t.status for t in read(log).trials] == ["ok", "ok"]
    monkeypatch.setattr("nestwright.autotune.fleet.fleet.ARRIVAL", 0.5)
    missing = [*given, "--scheduler", cluster.address, "--resource", "gpu"]
    assert main(missing) == 2
    assert "no worker" in capfd.readouterr().err


def test_a_scheduler_that_is_not_there_or_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nestwright.autotune.fleet.dask.CONNECT", 1.0)
    with pytest.raises(FleetError, match="no Dask scheduler answers") as caught:
        connect("127.0.0.1:9", Certificates(), RESOURCE)
    assert "dask scheduler" in caught.value.hint and "--resources nestwright-cpu=1" in str(
        caught.value
    )
    own = Cluster(tmp_path)
    pool = own.pool(0)
    assert pool.workers() == {}
    own.close()
    with pytest.raises(FleetError, match="is gone"):
        for _ in range(1000):
            pool.workers()
            time.sleep(0.02)
    pool.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://10.0.0.7:8786", "plain tcp"),
        ("cluster.example.org:8786", "plain tcp"),
        ("[2001:db8::1]:8786", "plain tcp"),
        ("ws://127.0.0.1:8786", "not the address"),
        ("127.0.0.1", "not the address"),
        ("tls://:8786", "not the address"),
        ("tls://a:port", "not an address"),
        ("tls://a:8786", "needs certificates"),
        ("tls://a:8786 --tls-cert", "no such file"),
    ],
)
def test_addresses_that_are_refused(address: str, why: str) -> None:
    address, _, option = address.partition(" ")
    with pytest.raises(ArgumentError, match=why) as caught:
        connect(address, Certificates(certificate="nowhere.pem" if option else None), RESOURCE)
    assert "tls" in str(caught.value)


def test_addresses_that_are_taken() -> None:
    assert checked("127.0.0.1:8786") == ("tcp://127.0.0.1:8786", False)
    assert checked("tcp://[::1]:8786") == ("tcp://[::1]:8786", False)
    assert checked("localhost:1") == ("tcp://localhost:1", False)
    assert checked("tls://a.b:8786") == ("tls://a.b:8786", True)


def test_options_without_a_cluster(capfd: pytest.CaptureFixture[str]) -> None:
    model = str(Path(__file__).parents[3] / "examples" / "softmax.hlo")
    assert main(["tune", model, "--resource", "x"]) == 2
    assert "--scheduler" in capfd.readouterr().err
    assert main(["tune", model, "--scheduler", "10.1.2.3:8786"]) == 2
    assert "plain tcp" in capfd.readouterr().err
    assert main(["tune", model, "--scheduler", "127.0.0.1:1", "--simulate-cost"]) == 2
    assert "nothing is measured" in capfd.readouterr().err
