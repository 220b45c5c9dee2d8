"""What NVIDIA's assembler says, and the cache of what it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestwright.codegen.targets.cuda import ptxas
from nestwright.codegen.targets.cuda.ptxas import Cubin, Ptxas, Usage
from nestwright.ir.errors import NestwrightWarning, TargetError

TOLD = """\
ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 64 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 368 bytes cmem[0]
ptxas warning : Value of threads per SM for entry first is out of range.
"""


def test_what_it_says_is_read() -> None:
    first = Usage(registers=168, stack=64, spill_stores=60, spill_loads=56, shared=1024)
    assert ptxas.usages(TOLD) == {"first": first, "second": Usage(registers=16)}
    warned, numbered = ptxas.warnings(TOLD)
    assert warned.startswith("Value of threads")
    assert numbered.startswith("(C7510)")


def test_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = []

    def run(ptx: str, arch: str, tool: Ptxas) -> Cubin:
        runs.append((ptx, arch))
        return Cubin(b"\x7fELF\n\x00code", {"k": Usage(registers=9)}, ("careful",))

    monkeypatch.setattr(ptxas, "_folder", lambda: tmp_path)
    monkeypatch.setattr(ptxas, "_run", run)
    monkeypatch.setattr(ptxas, "find", lambda: Ptxas("/bin/ptxas", "13.0.1"))
    ptxas._assembled.cache_clear()
    made = ptxas.assemble("text", "sm_80")
    assert ptxas.assemble("text", "sm_80") is made
    ptxas._assembled.cache_clear()  # as in another process
    assert ptxas.assemble("text", "sm_80") == made
    assert len(runs) == 1
    ptxas.assemble("text", "sm_90")
    assert len(runs) == 2
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1])  # cut off
    ptxas._assembled.cache_clear()
    assert ptxas.assemble("text", "sm_80") == made
    assert len(runs) == 3
    ptxas._assembled.cache_clear()


def test_without_an_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find", lambda: None)
    with pytest.raises(TargetError, match="pip install"):
        ptxas.assemble("text", "sm_80")


def test_the_newest_is_taken() -> None:
    old, new = Ptxas("/a", "9.2.5"), Ptxas("/b", "13.0.1")
    assert max((new, old), key=lambda p: p.order) is new
    assert ptxas._asked("/no/such/ptxas") is None


# ---- what stands in the cache is not believed by its name -----------------------------------


CUBIN = ptxas.Cubin(b"code", {"k": ptxas.Usage(8)}, ())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a machine whose assembler makes ``CUBIN`` of everything; each call counts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ptxas._assembled.cache_clear()
    return tmp_path / "nestwright" / "cubin"


def made(monkeypatch: pytest.MonkeyPatch, ptx: str = "ptx") -> int:
    """How often the assembler ran for one module."""
    runs: list[str] = []

    def run(text: str, arch: str, tool: ptxas.Ptxas) -> ptxas.Cubin:
        runs.append(text)
        return CUBIN

    monkeypatch.setattr(ptxas, "_run", run)
    ptxas._assembled.cache_clear()
    assert ptxas._assembled(ptx, "sm_90", ptxas.Ptxas("ptxas", "13.0")) == CUBIN
    return len(runs)


def test_machine_code_is_kept_for_this_user_alone(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [made(monkeypatch) for _ in range(2)] == [1, 0]
    (file,) = kept.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and kept.stat().st_mode & 0o777 == 0o700


def test_machine_code_of_another_module_is_not_used(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch)
    (mine,) = kept.iterdir()
    made(monkeypatch, "other")
    (theirs,) = set(kept.iterdir()) - {mine}
    theirs.replace(mine)
    assert [made(monkeypatch) for _ in range(2)] == [1, 0]


def test_machine_code_that_others_may_write_is_told_of(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch)
    (file,) = kept.iterdir()
    file.chmod(0o666)
    with pytest.warns(NestwrightWarning, match="others may write"):
        assert made(monkeypatch) == 1
    assert made(monkeypatch) == 0
    kept.chmod(0o777)
    with pytest.warns(NestwrightWarning, match="others may write"):
        assert made(monkeypatch) == 1
