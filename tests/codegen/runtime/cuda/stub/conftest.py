"""Tests over the stand-in for the driver: each runs in a fork of one child that has loaded it.

A test that takes ``stub`` is not run in this process: the child imports its file, forks, and calls
it there with a stand-in of its own. Its parameters travel as JSON. What the stand-in reports at the
end, writes outside of memory or calls of destroyed handles, fails the test.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.stub.forks import Forks
from gpu.stub.library import build, compiler

FOLDER = Path(__file__).parents[5] / "benchmarks"


def _has_bindings() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.driver") is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, built."""
    if compiler() is None:
        pytest.skip("no C compiler here: cc, gcc or clang")
    return build(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def forks(library: Path) -> Iterator[Forks]:
    """The child that forks."""
    if not _has_bindings():
        pytest.skip("cuda-python is not installed")
    made = Forks(library, FOLDER)
    yield made
    made.close()


@pytest.fixture
def stub(forks: Forks) -> Forks:
    """What a test over the stand-in takes."""
    return forks


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that takes ``stub`` in a fork."""
    forks = pyfuncitem.funcargs.get("stub")
    if not isinstance(forks, Forks):
        return None
    names = [n for n in pyfuncitem._fixtureinfo.argnames if n != "stub"]
    params = {name: pyfuncitem.funcargs[name] for name in names}
    told = forks.run(pyfuncitem.path, pyfuncitem.function.__name__, params)
    if told:
        pytest.fail(told, pytrace=False)
    return True
