"""Where caches are: the same place with and without the package that knows it on every system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.ir.files import cache_folder

BUILT = """
import sys
sys.modules["platformdirs"] = None
import numpy as np
import nestwright as nw
from nestwright.autotune.measure.host.lock import _own_path
from nestwright.codegen.driver import store
from nestwright.codegen.targets.cuda import ptxas
text = "HloModule m\\nENTRY e { x = f32[4] parameter(0)\\n ROOT y = f32[4] add(x, x) }"
open(sys.argv[1], "w").write(text)
x = np.ones(4, np.float32)
assert (nw.build(sys.argv[1])(x) == 2).all()
nw.build(sys.argv[1], target="cuda -arch=sm_90")
assert _own_path().parent == store.folder().parent == ptxas._folder().parent
assert any(store.folder().iterdir())
"""


@pytest.mark.parametrize("named", [None, "/somewhere", "not/absolute"])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the place is another")
def test_the_cache_is_in_one_place(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "platformdirs", None)
        without = cache_folder()
    assert without.is_absolute() and without.name == "nestwright"
    if named is None or os.path.isabs(named):
        pytest.importorskip("platformdirs")
        assert without == cache_folder()


def test_without_platformdirs_models_are_built_and_kept(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "NESTWRIGHT_CACHE"}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BUILT, str(tmp_path / "model.hlo")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
