"""The collector rests while a pause is open, in all threads, and then is as it was before."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from nestwright.codegen.driver.garbage import collector_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_is_as_it_was_after_a_pause() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_a_user_who_collects_nothing_is_left_alone() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_the_last_thread_ends_the_pause() -> None:
    inside, done = Event(), Event()

    def other() -> None:
        with collector_paused():
            inside.set()
            done.wait(60)

    thread = Thread(target=other)
    with collector_paused():
        thread.start()
        inside.wait(60)
    assert not gc.isenabled()
    done.set()
    thread.join()
    assert gc.isenabled()


FORKED = """
import gc, os
from threading import Event, Thread
from nestwright.codegen.driver.garbage import collector_paused

inside, done = Event(), Event()

def other():
    with collector_paused():
        inside.set()
        done.wait(60)

thread = Thread(target=other)
thread.start()
inside.wait(60)
child = os.fork()
if not child:
    collects = gc.isenabled()
    with collector_paused():
        pauses = not gc.isenabled()
    os._exit(0 if collects and pauses and gc.isenabled() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert not gc.isenabled()
done.set()
thread.join()
assert gc.isenabled()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_a_fork_collects() -> None:
    """The thread that would end the pause is not in it."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
