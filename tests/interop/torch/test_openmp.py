"""Idle threads of OpenMP end before a long call, and start again with torch's next operator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import


class Costs:
    """What ``undisturbed`` asks of an executable."""

    def __init__(self, flops: float) -> None:
        self.flops = flops

    def cost_analysis(self) -> dict[str, float]:
        return {"flops": self.flops}


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from nestwright.interop.torch import openmp

    for name in openmp._ASKED:
        monkeypatch.delenv(name, raising=False)
    openmp._release.cache_clear()
    yield openmp._release()
    openmp._release.cache_clear()


def test_threads_end_before_a_long_call_alone(release: Any) -> None:
    from nestwright.interop.torch.openmp import undisturbed

    if release is None:
        pytest.skip("torch has no threads of libgomp here")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    x = torch.ones(1 << 20)
    assert torch.equal(x + x, x * 2)
    many = threads()
    call = undisturbed(Costs(1e9), lambda: [threads()])  # type: ignore[arg-type]
    assert undisturbed(Costs(1e3), call) is call  # type: ignore[arg-type]
    assert call() == [many - 1]
    assert torch.equal(x + x, x * 2) and threads() == many
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_the_user_says_of_waiting_threads_holds(
    name: str, release: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nestwright.interop.torch import openmp

    monkeypatch.setenv(name, "1000")
    openmp._release.cache_clear()
    assert openmp._release() is None


def test_its_library_is_found_in_folders_with_spaces() -> None:
    from nestwright.interop.torch.openmp import _loaded

    places = ("/a b/libgomp-1.so.1", "/a b/libgomp-1.so.1", "/libgomp/c.so", "[heap]", "")
    lines = [f"7f00-7f10 r-xp 00000000 08:01 123    {place}" for place in places]
    assert _loaded("\n".join(lines)) == ["/a b/libgomp-1.so.1"]
