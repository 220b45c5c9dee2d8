"""What all executables share is compiled once for the targets that LLVM does not tell apart."""

from __future__ import annotations

import pytest

from nestwright.codegen.targets.cpu import toolchain
from nestwright.ir.target import Target

TEXT = "define i32 @f() {\n  ret i32 1\n}\n"


def test_once_for_targets_that_llvm_does_not_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    compile = toolchain.compile

    def told(text: str, target: Target) -> bytes:
        made.append(target.spec)
        return compile(text, target)

    monkeypatch.setattr(toolchain, "_compiled", {})
    monkeypatch.setattr(toolchain, "compile", told)
    specs = ["cpu -threads=1", "cpu -threads=2", "cpu -mcpu=haswell", "cpu -mcpu=haswell"]
    codes = [toolchain.compile_once(TEXT, Target.parse(s)) for s in specs]
    assert codes[0] is codes[1] and codes[2] is codes[3]
    assert made == ["cpu -threads=1", "cpu -mcpu=haswell"]
    other = toolchain.compile_once(TEXT.replace("i32 1", "i32 2"), Target.parse(specs[0]))
    assert other != codes[0] and len(made) == 3
    assert all(code == compile(TEXT, Target.parse(s)) for code, s in zip(codes, specs, strict=True))
