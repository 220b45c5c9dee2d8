"""What tests of every layer share: golden files; property tests draw the same every time."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read by NumPy: tests run on every core already

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from nestwright.codegen.driver import parallel
from nestwright.ir.cores import CpuCore
from nestwright.schedule.sketches.cpu.nests import pointwise

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
os.environ["NESTWRIGHT_CACHE"] = "off"  # a test of the compiler has it compile
os.environ["NESTWRIGHT_CALIBRATION"] = "off"  # nothing depends on the machine's speed
os.environ["NESTWRIGHT_VERIFY"] = "stages"  # each ends with what its passes established
# Tests start hundreds of processes: one compiles the modules of the package for all of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # and pytest keeps the tests as it rewrites them

HELPED = parallel.JOBS_PER_HELPER
parallel.JOBS_PER_HELPER = 1 << 20  # a test has one core: helpers only import what is here already

# Jobs that a shell starts in the background ignore it, and so would every process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
CORPUS = TESTS.parents[1] / "shared" / "corpus"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files instead of comparing")


def pytest_collection_finish() -> None:
    """Thousands of tests are a million objects, through which no collection need look again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Golden:
    """The expected text of one test: ``tests/golden/<layer>/<test name>.txt``."""

    path: Path
    bless: bool

    def check(self, text: str) -> None:
        """Fail unless ``text`` is what the golden file holds; with ``--bless``, write it."""
        if self.bless:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text)
        elif not self.path.is_file():
            pytest.fail(f"there is no {self.path.relative_to(TESTS)}: run pytest with --bless")
        else:
            assert text == self.path.read_text()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with the file that bears the test's name."""
    layer = request.path.relative_to(TESTS).parts[0]
    name = request.node.name.replace("[", "-").replace("]", "")
    return Golden(TESTS / "golden" / layer / f"{name}.txt", request.config.getoption("--bless"))


@pytest.fixture(scope="module")
def tools() -> Iterator[Callable[[str], Any]]:
    """Imports the corpus's own tools, which make the arguments and judge the results."""
    if not CORPUS.exists():
        pytest.skip("the corpus is not beside this checkout")
    sys.path.insert(0, str(CORPUS / "tools"))
    yield import_module
    sys.path.remove(str(CORPUS / "tools"))
    for name in ("cases", "reference", "make_inputs"):
        sys.modules.pop(name, None)


@pytest.fixture
def cheap_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads cost nothing, so that default schedules share small groups too."""
    monkeypatch.setattr(CpuCore, "sharing", 0.0)
    monkeypatch.setattr(pointwise, "LEAST_SHARED", 0.0)


@pytest.fixture
def every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes establish is checked after each, rather than where a stage ends."""
    monkeypatch.setenv("NESTWRIGHT_VERIFY", "1")


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds start helpers, as they do for users."""
    monkeypatch.setattr(parallel, "JOBS_PER_HELPER", HELPED)
