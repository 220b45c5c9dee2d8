"""Calling an executable: what is taken, what is refused, what comes back; and saving it.

The executables here have one kernel written by hand: it adds 1 to f32 elements.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.artifact import is_artifact, load
from nestwright.codegen.plan.bundle import Bundle
from nestwright.codegen.plan.nodes import BufferSlice, CopyThunk, KernelThunk, Plan
from nestwright.codegen.plan.notes import FALLBACK
from nestwright.codegen.plan.saved.seal import seal
from nestwright.codegen.plan.signature import ArraySpec, Tree
from nestwright.codegen.runtime import native
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.cpu import program
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.codegen.targets.cpu.backend import shared_runtime
from nestwright.ir.dtypes import ALL, BY_NAME, DType, f32, to_numpy
from nestwright.ir.errors import (
    ArgumentError,
    ArtifactError,
    OutOfMemoryError,
    ParseError,
    TargetError,
)
from nestwright.ir.target import Target

HOST = Target.parse("cpu")

ADD_ONE = """
define void @nw_add_one(ptr %in, ptr %out) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %next ]
  %from = getelementptr float, ptr %in, i64 %i
  %to = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, 1.0
  store float %y, ptr %to
  %after = add i64 %i, 1
  %more = icmp slt i64 %after, COUNT
  br i1 %more, label %next, label %done
done:
  ret void
}
"""


def make(
    dims: tuple[int, ...],
    dtype: DType = f32,
    tree: Tree = 0,
    inputs: Tree = (0,),
    target: Target = HOST,
) -> Executable:
    """One parameter, one result: f32 goes through the arena and gets 1 added, others are copied."""
    spec = ArraySpec("x", dtype, dims)
    n = spec.bytes
    given, result = BufferSlice("param", 0, n), BufferSlice("result", 0, n)
    between = BufferSlice("arena", 0, n)
    first = (
        KernelThunk("nw_add_one", (given, between), 1)
        if dtype == f32
        else CopyThunk(given, between)
    )
    plan = Plan((first, CopyThunk(between, result)), n, 64, (spec,), (spec,), inputs, tree)
    kernel = cpu.compile(ADD_ONE.replace("COUNT", str(max(1, n // 4))), target)
    kernels = {"nw_add_one": kernel} if dtype == f32 else {}
    buffers = dict.fromkeys(kernels, (n, n))
    code = cpu.compile(program.module_text(plan, seal(plan, kernels, buffers), target), target)
    zeros = np.zeros(64, np.uint8)
    bundle = Bundle("tiny", target, plan, kernels, buffers, code, shared_runtime(target), zeros)
    return Executable(bundle)


@pytest.fixture(scope="module")
def add() -> Executable:
    return make((8,))


X = np.arange(8, dtype=np.float32)


def test_a_call_gives_an_array_of_its_own(add: Executable) -> None:
    first, second = add(X), add(X + 1)
    assert (first == X + 1).all()
    assert (second == X + 2).all()
    assert first.flags.owndata


class Dlpack:
    def __dlpack__(self, **options: Any) -> object:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return X.__dlpack_device__()


class NotLent(Dlpack):
    """An array whose library does not lend its memory, as JAX not that of int4: a copy is had."""

    def __dlpack__(self, **options: Any) -> object:
        raise RuntimeError("no equivalent")

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return X


class Lazy:
    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return X


@pytest.mark.parametrize(
    "arg",
    [
        np.repeat(X, 2)[::2],
        X.astype(">f4"),
        memoryview(X),
        Dlpack(),
        NotLent(),
        Lazy(),
        np.broadcast_to(np.float32(3), (8,)),
        X[::-1],
        X.reshape(8, 1)[:, 0],
    ],
)
def test_other_forms_of_the_same_array_are_taken(add: Executable, arg: object) -> None:
    expected = np.asarray(X if isinstance(arg, Dlpack) else arg).astype(np.float32) + 1
    assert (add(arg) == expected).all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "tiny: expected 1 argument, got 0: the parameters are x: f32[8]"),
        ((X, X), "tiny: expected 1 argument, got 2: the parameters are x: f32[8]"),
        ((X[:4],), "tiny: argument 0 (x): expected f32[8], got f32[4]"),
        ((X.reshape(2, 4),), "tiny: argument 0 (x): expected f32[8], got f32[2,4]"),
        (
            (X.astype(np.float64),),
            "tiny: argument 0 (x): expected f32[8], got f64[8]\n"
            "  hint: x.astype('float32') converts it",
        ),
        (
            (X.view(np.int32),),
            "tiny: argument 0 (x): expected f32[8], got s32[8]\n"
            "  hint: x.astype('float32') converts it",
        ),
        (
            ([1.0] * 8,),
            "tiny: argument 0 (x): expected f32[8], got a Python list\n"
            "  hint: numpy.asarray(x, 'float32') makes an array",
        ),
        ((None,), "tiny: argument 0 (x): expected f32[8], got NoneType"),
        ((np.float32(1),), "tiny: argument 0 (x): expected f32[8], got f32[]"),
    ],
)
def test_what_does_not_fit_is_refused(add: Executable, args: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        add(*args)
    assert str(caught.value) == message


class Deleted:
    """An array as JAX leaves it once it is donated."""

    def __dlpack__(self, **_: object) -> object:
        raise TypeError("object of type 'NoneType' has no len()")

    def is_deleted(self) -> bool:
        return True


def test_donated_arrays_are_refused_as_such(add: Executable) -> None:
    with pytest.raises(ArgumentError, match="this Deleted was deleted, or donated to a call"):
        add(Deleted())


class Tensor:
    """An array of doubles that converts as torch's do."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return X.astype(np.float64)

    def to(self, dtype: object) -> None:
        raise NotImplementedError


def test_hints_are_in_the_terms_of_the_argument(add: Executable) -> None:
    with pytest.raises(ArgumentError, match=r"hint: x\.to\(torch\.float32\) converts it"):
        add(Tensor())


def test_arguments_are_let_go_whether_taken_or_refused(add: Executable) -> None:
    good, bad = np.zeros(8, np.float32), np.zeros(4, np.float32)
    before = sys.getrefcount(good), sys.getrefcount(bad)
    for _ in range(10):
        add(good)
        with pytest.raises(ArgumentError):
            add(bad)
    gc.collect()
    assert (sys.getrefcount(good), sys.getrefcount(bad)) == before


@pytest.mark.parametrize("arg", [2.5, 2, np.float32(2.5), np.array(2.5, np.float32)])
def test_numbers_are_taken_for_rank_0(arg: Any) -> None:
    assert make(())(arg) == np.float32(arg) + 1


@pytest.mark.parametrize("arg", [True, 1j, "2", np.float64(2)])
def test_other_numbers_are_refused_for_rank_0(arg: Any) -> None:
    with pytest.raises(ArgumentError, match="expected f32"):
        make(())(arg)


def test_an_integer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="300 does not fit u8"):
        make((), BY_NAME["u8"])(300)


@pytest.mark.parametrize("dtype", [d for d in ALL if d != f32], ids=str)
def test_every_element_type_comes_through(dtype: DType) -> None:
    exe = make((5, 3), dtype)
    array = np.arange(15).reshape(5, 3).astype(to_numpy(dtype))
    result = exe(array)
    assert result.dtype == array.dtype
    assert result.tobytes() == array.tobytes()
    with pytest.raises(ArgumentError):
        exe(np.zeros((5, 3), np.float32))


def test_bits_of_another_type_are_not_taken_for_bf16() -> None:
    with pytest.raises(ArgumentError, match=r"expected bf16\[4\], got u16\[4\]"):
        make((4,), BY_NAME["bf16"])(np.zeros(4, np.uint16))


def test_zero_sized_arrays_pass() -> None:
    assert make((0, 3), BY_NAME["s32"])(np.zeros((0, 3), np.int32)).shape == (0, 3)


@pytest.mark.parametrize(
    ("tree", "inputs", "args", "shape"),
    [
        ((0,), (0,), (X,), lambda r: r[0]),
        (((0,),), (0,), (X,), lambda r: r[0][0]),
        (0, ((0,),), ((X,),), lambda r: r),
        (0, ((0,),), (X,), lambda r: r),
    ],
)
def test_tuples_stand_as_in_hlo(
    tree: Tree, inputs: Tree, args: Any, shape: Callable[[Any], Any]
) -> None:
    assert (shape(make((8,), tree=tree, inputs=inputs)(*args)) == X + 1).all()


def test_out_gets_the_result(add: Executable) -> None:
    out = np.zeros(8, np.float32)
    assert add(X, out=out) is out
    assert (out == X + 1).all()


@pytest.mark.parametrize("strided", [False, True])
def test_out_may_be_strided_or_overlap_the_input(add: Executable, strided: bool) -> None:
    if strided:
        wide = np.zeros(16, np.float32)
        add(X, out=wide[::2])
        assert (wide[::2] == X + 1).all()
        assert (wide[1::2] == 0).all()
    else:
        both = np.arange(9, dtype=np.float32)
        add(both[:8], out=both[1:])
        assert both.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("out", [np.zeros(8), np.zeros(4, np.float32), [0.0] * 8, (X,)])
def test_out_that_does_not_fit_is_refused(add: Executable, out: object) -> None:
    with pytest.raises(ArgumentError, match="out"):
        add(X, out=out)


def test_read_only_out_is_refused(add: Executable) -> None:
    out = np.zeros(8, np.float32)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        add(X, out=out)


def test_large_results_begin_pages_and_are_never_shared() -> None:
    exe, x = make((1 << 15,)), np.zeros(1 << 15, np.float32)
    results = [exe(x) for _ in range(6)]
    starts = {r.ctypes.data for r in results}
    assert all(s % 4096 == 0 for s in starts)
    assert len(starts) == 6
    view = results[0][100:]
    kept = results[0].ctypes.data
    del results
    again = [exe(x) for _ in range(6)]
    assert kept not in {r.ctypes.data for r in again}
    assert (view == 1).all()


def test_threads_may_call_at_once() -> None:
    exe = make((1 << 15,))
    wrong = []

    def work(seed: int) -> None:
        x = np.full(1 << 15, seed, np.float32)
        for _ in range(100):
            if not (exe(x) == seed + 1).all():
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_the_code_lives_as_long_as_the_callable() -> None:
    call = make((8,)).loaded().call
    gc.collect()
    assert (call(X) == X + 1).all()


def test_a_saved_executable_gives_the_same_bits(add: Executable, tmp_path: Path) -> None:
    add.save(tmp_path / "a.nw")
    again = load(tmp_path / "a.nw")
    assert is_artifact(tmp_path / "a.nw")
    assert again(X).tobytes() == add(X).tobytes()
    assert again.plan == add.plan
    assert again.memory_analysis() == add.memory_analysis()
    again.save(tmp_path / "b.nw")
    assert (tmp_path / "a.nw").read_bytes() == (tmp_path / "b.nw").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nw", "b.nw"]


def test_saving_where_nothing_can_be_written_is_an_error(add: Executable, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot write"):
        add.save(tmp_path / "no" / "folder" / "a.nw")


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy of an archive, members changed or (None) left out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return target


def manifest_with(**fields: object) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        return json.dumps(json.loads(data) | fields).encode() if name == "manifest.json" else data

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (manifest_with(format=99), "format 99"),
        (manifest_with(kind="other"), "another program"),
        (manifest_with(name="other"), "the manifest does not match its digest"),
        (lambda n, d: None if n == "program.o" else d, "program.o is missing"),
        (lambda n, d: d[:-1] + b"x" if n == "plan.json" else d, "does not match its digest"),
        (lambda n, d: b"[1" if n == "manifest.json" else d, "the file is damaged"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    add: Executable, tmp_path: Path, change: Callable[[str, bytes], bytes | None], message: str
) -> None:
    add.save(tmp_path / "a.nw")
    bad = rewritten(tmp_path / "a.nw", tmp_path / "bad.nw", change)
    with pytest.raises(ArtifactError, match=message):
        load(bad)


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "model.hlo"
    text.write_text("HloModule m")
    assert not is_artifact(text)
    with pytest.raises(ArtifactError, match="no built model"):
        load(text)
    with pytest.raises(ArtifactError, match="no such file"):
        load(tmp_path / "missing.nw")


def test_code_for_another_machine_is_saved_but_not_run(tmp_path: Path) -> None:
    foreign = make((8,), target=Target.parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"))
    foreign.save(tmp_path / "a.nw")
    with pytest.raises(TargetError, match="cannot run its code"):
        load(tmp_path / "a.nw")(X)


def test_a_loaded_executable_says_which_stages_it_holds(add: Executable, tmp_path: Path) -> None:
    add.save(tmp_path / "a.nw")
    loaded = load(tmp_path / "a.nw")
    assert loaded.as_text("plan") == add.as_text("plan")
    with pytest.raises(ArtifactError, match=r"no text of stage 'llvm'.*\n.*nestwright show"):
        loaded.as_text("llvm")


def test_a_damaged_note_is_one_error(add: Executable) -> None:
    damaged = Executable(replace(add.bundle, notes={FALLBACK: "{"}))
    with pytest.raises(ArtifactError, match="damaged: its note 'fallback' is not JSON"):
        damaged.fallbacks()


def test_analyses_use_the_names_of_jax(add: Executable) -> None:
    assert add.memory_analysis() == {
        "argument_size_in_bytes": 32,
        "output_size_in_bytes": 32,
        "alias_size_in_bytes": 0,
        "temp_size_in_bytes": 32,
        "generated_code_size_in_bytes": add.bundle.code_bytes,
        "constant_size_in_bytes": 64,
    }
    bundle = replace(add.bundle, costs={"flops": 8.0, "bytes accessed": 64.0})
    assert Executable(bundle).cost_analysis() == {"flops": 8.0, "bytes accessed": 64.0}


# ---- calls that are refused -----------------------------------------------------------------


class Masked(np.ma.MaskedArray[Any, Any]):
    pass


@pytest.mark.parametrize("kind", [np.ma.MaskedArray, Masked])
def test_masked_arrays_are_refused_on_the_way_in_and_out(add: Executable, kind: Any) -> None:
    masked = np.ma.masked_array(X, mask=X > 3).view(kind)
    for call in (lambda: add(masked), lambda: add(X, out=masked)):
        with pytest.raises(ArgumentError, match=r"a masked array(.|\n)*x\.filled"):
            call()
    with pytest.raises(ArgumentError, match="a masked array"):
        nw.build(nw.parse(PLUS), constants={0: masked})


PLUS = """HloModule plus
ENTRY main { x = f32[8] parameter(0)  y = f32[8] parameter(1)  ROOT z = f32[8] add(x, y) }
"""


def test_results_in_the_other_byte_order_are_refused_by_name(add: Executable) -> None:
    with pytest.raises(ArgumentError, match="of the other byte order") as refused:
        add(X, out=X.astype(X.dtype.newbyteorder()))
    assert "this machine's byte order" in refused.value.hint
    with pytest.raises(ArgumentError, match="expected") as refused:
        add(X, out=np.empty((*X.shape, 1), X.dtype))
    assert not refused.value.hint


def test_an_unknown_keyword_is_refused(add: Executable) -> None:
    with pytest.raises(ArgumentError, match=r"unknown keyword 'y'.*the inputs are x"):
        add(y=X)
    with pytest.raises(ArgumentError, match="unknown keyword 'where'"):
        add(X, where=True)


def test_arguments_go_by_name(add: Executable) -> None:
    assert add.input_names == ("x",)
    np.testing.assert_array_equal(add(x=X), add(X))
    out = np.empty_like(X)
    assert add(x=X, out=out) is out
    with pytest.raises(ArgumentError, match=r"unknown keyword 'x'.*it is given by place"):
        add(X, x=X)
    plus = nw.build(nw.parse(PLUS))
    assert (plus.input_names, plus.output_names) == (("x", "y"), ("result 0",))
    with pytest.raises(ArgumentError, match=r"no value for y.*inputs: x, y"):
        plus(x=X)


@pytest.mark.parametrize("name", ["self", "args", "out"])
def test_any_name_of_an_input_is_a_keyword(name: str) -> None:
    text = PLUS.replace("add(x,", f"subtract({name},").replace("x =", f"{name} =")
    minus = nw.build(nw.parse(text))
    assert minus.input_names == (name, "y")
    np.testing.assert_array_equal(minus(y=X, **{name: 3 * X}), 2 * X)
    out = np.empty_like(X)
    assert minus(3 * X, X, out=out) is out


class Broken:
    def __array__(self, *args: object, **options: object) -> Any:
        raise ZeroDivisionError("boom")


class BrokenDlpack:
    def __dlpack__(self, **options: object) -> Any:
        raise KeyError("no")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("value", [Broken(), BrokenDlpack()])
def test_what_an_argument_raises_is_told(add: Executable, value: object) -> None:
    with pytest.raises(
        ArgumentError, match=r"does not convert to an array: (ZeroDivisionError: boom|KeyError)"
    ):
        add(value)


def test_no_memory_for_the_results_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(shape: tuple[int, ...], dtype: object) -> Any:
        raise MemoryError(f"no {shape} here")

    monkeypatch.setattr(native, "allocator", lambda nbytes: none)
    exe = nw.build(nw.parse(PLUS), cache=False)
    with pytest.raises(OutOfMemoryError, match="no memory for this call") as caught:
        exe(X, X)
    assert isinstance(caught.value, MemoryError) and "(8,)" in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_paths_that_no_system_has_are_refused(add: Executable, path: str) -> None:
    with pytest.raises(ParseError, match="cannot read the model"):
        nw.build(path)
    with pytest.raises(ArtifactError, match="cannot read"):
        load(path)
    with pytest.raises(ArtifactError, match="cannot write"):
        add.save(path)
    assert not is_artifact(path)
