"""LLVM IR in ``.ll`` files: well formed on every system, and in step with the tables of Python."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import llvmlite.binding as llvm
import numpy as np
import pytest

from nestwright.autotune.measure.host import peak
from nestwright.autotune.measure.memory import cache_state, poison
from nestwright.codegen.emit.expr import Emitter
from nestwright.codegen.emit.llvm import template as ll_template
from nestwright.codegen.emit.llvm.estimates import models_text
from nestwright.codegen.emit.llvm.remainder import remainder_text
from nestwright.codegen.emit.llvm.template import render
from nestwright.codegen.emit.statements.flushing import mode_texts
from nestwright.codegen.math.arithmetic import quadrant as vector_math_quadrant
from nestwright.codegen.math.f32 import without_f64
from nestwright.codegen.plan import interface
from nestwright.codegen.plan.interface import CArray, Interface, Weights
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.codegen.plan.struct_table import Struct
from nestwright.codegen.plan.symbols import PARALLEL, POLL
from nestwright.codegen.runtime import structs
from nestwright.codegen.runtime.dlpack import exchange
from nestwright.codegen.runtime.orc import llvm_machine
from nestwright.codegen.runtime.profile import structs as profile_structs
from nestwright.codegen.runtime.sim import structs as sim_structs
from nestwright.codegen.targets.cpu import probe
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.codegen.targets.cpu.c_library import instance
from nestwright.codegen.targets.cpu.calls import entry, interrupts
from nestwright.codegen.targets.cpu.threads import pool
from nestwright.codegen.targets.sim import matrix, phases, runtime
from nestwright.ir.dtypes import f32, f64
from nestwright.ir.errors import VerifyError
from nestwright.ir.loop.intrinsics import TABLE
from nestwright.ir.target import Target
from nestwright.ir.targets.cpu import FLUSHING

ROOT = Path(__file__).resolve().parents[3]
TRIPLES = ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "aarch64-apple-darwin")
SPECS = (*TRIPLES, "x86_64-linux-gnu -mcpu=sapphirerapids")
LAYERS = ("ir", "te", "schedule", "codegen", "autotune", "cli", "interop")


def templates() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.ll"))


def modules(target: Target) -> Iterator[str]:
    """Yield every module that is made of templates."""
    for module in (pool, probe, entry, interrupts, runtime, peak, poison, cache_state):
        yield module.module_text(target)
    for checked, products, tensors in ((1, 1, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1)):
        yield phases_module(target, bool(checked), bool(products), bool(tensors))
    for threads, weights in ((1, "none"), (2, "object"), (2, "file")):
        yield instance.module_text(library(threads, weights), target)
    for name, row in TABLE.items():
        if row.matrix is not None:
            product = matrix.product_text(name, row.matrix)
            assert "define internal" in product
            yield product.replace("define internal", "define")
    for function in (
        models_text(),
        remainder_text("rest32", f32),
        remainder_text("rest64", f64),
        vector_math_quadrant.quadrant_text(),
        without_f64.quadrant_text(),
    ):
        yield INTRINSICS + function.replace("define internal", "define")
    yield render("nestwright.codegen.driver", "llvm_faults.ll")
    if target.machine in FLUSHING:
        texts = mode_texts(replace(target, flushes=True), (POLL, PARALLEL))
        outside = f"declare i1 @{POLL}()\ndeclare void @{PARALLEL}(ptr, ptr, i64)\n"
        yield outside + "\n".join(texts).replace("define internal", "define")


def phases_module(target: Target, checked: bool, products: bool, tensors: bool) -> str:
    """The part of a kernel's module for barriers with phases, seen from outside."""
    em = Emitter(target)
    text = phases.phases_text(em, checked, products, tensors)
    text = text.replace("define internal", "define")
    return "\n".join([f'target triple = "{target.triple}"', text, *em.declarations.values()])


def library(threads: int, weights: Weights) -> Interface:
    """A C library of one input and one output."""
    x, y = (CArray(n, ArraySpec(n, f32, (2, 3))) for n in "xy")
    return Interface("net", (x,), (y,), 128, 64, weights, threads, bytes(32))


INTRINSICS = """
declare double @llvm.floor.f64(double)
declare double @llvm.sqrt.f64(double)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.fabs.f32(float)
declare double @llvm.fma.f64(double, double, double)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i32 @llvm.fshl.i32(i32, i32, i32)
"""


def test_the_end_of_a_coroutine_is_one_of_llvms() -> None:
    """The template is well formed in some versions of LLVM, and tells them from the others."""
    text = render("nestwright.codegen.targets.cpu", "coroutine_end.ll")
    assert cpu.coroutine_end() == ("void" if well_formed(text) else "i1")
    assert well_formed(text) != well_formed(text.replace("void @llvm", "i1 @llvm"))


def well_formed(text: str) -> bool:
    try:
        llvm.parse_assembly(text).verify()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("spec", SPECS)
def test_templates_are_well_formed(spec: str) -> None:
    target = Target.parse(f"llvm -mtriple={spec}")
    for text in modules(target):
        assert "${" not in text
        # LLVM reads assembly for the machine that it runs on only.
        assert (
            cpu.compile(text, target)
            if target.is_host or " asm " not in text
            else well_formed(text)
        )


def test_every_template_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    read = set()
    source = ll_template.source

    def recorded(package: str, file: str) -> str:
        read.add(ROOT.joinpath(*package.split(".")[1:], file))
        return source(package, file)

    monkeypatch.setattr(ll_template, "source", recorded)
    for spec in SPECS:
        for _ in modules(Target.parse(f"llvm -mtriple={spec}")):
            pass
    own_test = ROOT / "codegen/targets/cpu/coroutine_end.ll"
    assert read == set(templates()) - {own_test}


@pytest.mark.parametrize("path", templates(), ids=lambda path: path.name)
def test_templates_say_what_they_are_for(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("; ")
    assert max(map(len, lines)) <= 100


def structs_of(*tables: ModuleType) -> list[Struct]:
    return [value for table in tables for value in vars(table).values() if type(value) is Struct]


STRUCTS = structs_of(
    structs, exchange, sim_structs, profile_structs, poison, cache_state, interface
)
FOREIGN = {"Py_buffer"}  # CPython's: all fields are declared, whatever we use
READ_BY_PYTHON = {"launch.name"}  # for a report


def test_structures_have_names_of_their_own() -> None:
    assert len({struct.name for struct in STRUCTS}) == len(STRUCTS)


def test_every_field_is_used() -> None:
    used = {name for path in templates() for name in re.findall(r"\$\{([^}]*)\}", path.read_text())}
    declared = {
        f"{struct.name}.{field}"
        for struct in STRUCTS
        if struct.name not in FOREIGN
        for field in struct.fields
    }
    read_by_c = {f"tensor.{field}" for field in interface.TENSOR.fields}
    assert declared - used - read_by_c == READ_BY_PYTHON


PLACE = re.compile(r"(%[\w.]+) = getelementptr i8, ptr %[\w.]+, i64 \$\{([\w.]+)\}")
INLINE = re.compile(r"getelementptr \(i8, ptr @\w+, i64 \$\{([\w.]+)\}\)")
ACCESS = re.compile(
    r"(?:= load|store)(?: atomic)? (\w+|\[[^]]*\])[^,]*, ptr (getelementptr \([^)]*\)|%[\w.]+)"
)


def accesses(text: str) -> Iterator[tuple[str, str]]:
    """Yield (field, type) of each load and store at a named offset."""
    for function in re.split(r"^(?=define )", text, flags=re.M):
        places = dict(PLACE.findall(function))
        for type_, pointer in ACCESS.findall(function):
            inline = INLINE.fullmatch(pointer)
            if inline or pointer in places:
                yield inline[1] if inline else places[pointer], type_


def test_fields_are_read_and_written_as_their_types() -> None:
    types = {f"{s.name}.{field}": type_ for s in STRUCTS for field, type_ in s.fields.items()}
    found = [pair for path in templates() for pair in accesses(path.read_text())]
    assert len(found) > 60
    assert [(name, type_) for name, type_ in found if first(types[name]) != type_] == []


def first(type_: str) -> str:
    """The type of the first element of an array, which is at the array's place."""
    return re.sub(r"\[\d+ x (\w+)\]", r"\1", type_)


def test_the_simulator_reads_whole_fields() -> None:
    """Its accessors ``@field`` and ``@set_field`` take 8 bytes."""
    types = {f"{s.name}.{field}": type_ for s in STRUCTS for field, type_ in s.fields.items()}
    field = re.compile(r"field\(ptr [%@]\w+, i64 \$\{([\w.]+)\}")
    found = [name for path in templates() for name in field.findall(path.read_text())]
    assert len(found) > 60
    assert [name for name in found if types[name] not in ("i64", "ptr")] == []


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda s: s.name)
@pytest.mark.parametrize("triple", TRIPLES)
def test_offsets_are_those_of_llvm(struct: Struct, triple: str) -> None:
    machine = llvm_machine(Target.parse(f"llvm -mtriple={triple}"))
    module = llvm.parse_assembly(f"@s = global {struct.type} zeroinitializer")
    type_ = module.get_global_variable("s").global_value_type
    data = machine.target_data
    offsets = [data.get_element_offset(type_, n) for n in range(len(struct.fields))]
    assert offsets == list(struct.offsets.values())
    assert data.get_abi_size(type_) == struct.bytes


def test_the_view_of_memory_is_cpythons() -> None:
    x = np.zeros((3, 5, 2), np.float32)
    view = (ctypes.c_char * structs.PY_BUFFER.bytes)()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    get(x, ctypes.addressof(view), 0x1C)  # PyBUF_FULL_RO less writable: format, shape, strides
    fields = structs.PY_BUFFER.read(ctypes.addressof(view))
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    assert fields["buf"] == x.ctypes.data and fields["obj"] == id(x)
    assert (fields["len"], fields["itemsize"]) == (x.nbytes, 4)
    assert (fields["readonly"], fields["ndim"], fields["suboffsets"]) == (0, 3, 0)


def test_a_table_has_every_field_of_every_row() -> None:
    pair = Struct("pair", {"flag": "i32", "both": "[2 x ptr]", "count": "i64"})
    assert pair.names == {"pair.flag": 0, "pair.both": 8, "pair.count": 24, "sizeof.pair": 32}
    rows = [{"flag": -1, "both": [2, 3], "count": 4}, {"count": 7, "both": [5, 6], "flag": 1}]
    table = pair.table(rows)
    read = [pair.read(table.ctypes.data + n * pair.bytes) for n in range(2)]
    assert read == rows
    for wrong in ({"flag": 1, "both": (2, 3)}, {**rows[0], "more": 0}):
        with pytest.raises(KeyError, match="struct pair"):
            pair.table([wrong])


def test_a_constant_is_llvms() -> None:
    pair = Struct("pair", {"flag": "i32", "to": "ptr"})
    rows = [{"to": "null", "flag": "1"}, {"flag": "2", "to": "@s"}]
    text = f"@s = constant {pair.constants(rows)}\n@one = constant {pair.constant(rows[1])}\n"
    module = llvm.parse_assembly(text + f"@none = constant {pair.constants([])}\n")
    module.verify()
    assert "[2 x { i32, ptr }] [{ i32, ptr } { i32 1, ptr null }" in str(module)


Give = Callable[[str], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Give a template its text."""
    return lambda text: monkeypatch.setattr(ll_template, "source", lambda package, file: text)


def refusal(names: dict[str, object], tables: Sequence[Struct] = ()) -> str:
    with pytest.raises(VerifyError) as caught:
        render("nestwright.codegen", "some.ll", [s.names for s in tables], names)
    return str(caught.value)


def test_names_must_be_known_and_used(give: Give) -> None:
    pair = Struct("pair", {"flag": "i32", "count": "i64"})
    give("%p = getelementptr i8, ptr %x, i64 ${pair.count} ; ${pair.cuont}\nret i32 ${one}")
    assert "it uses ${pair.cuont}, not given" in refusal({"one": 1}, [pair])
    assert "${pair.flag}" in refusal({"one": 1}, [pair])  # the hint lists what there is
    give("ret i32 ${one}")
    assert "it does not use ${two}" in refusal({"one": 1, "two": 2})
    assert "it uses none of ${pair.count}" in refusal({"one": 1}, [pair])
    assert render("nestwright.codegen", "some.ll", [], {"one": 1}) == "ret i32 1"
