"""Identifiers of C, the texts made of them, and the checksum of weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.export.identifiers import identifier, identifiers, library_name
from nestwright.codegen.export.texts.render import c_type
from nestwright.codegen.export.weights import sums
from nestwright.ir.dtypes import ALL
from nestwright.ir.errors import ArgumentError

from .conftest import WARNINGS, need, run


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("x", "x"),
        ("input.1", "input_1"),
        ("[0]['w']", "arg_0_w"),
        ("für größe", "f_r_gr_e"),
        ("", "arg"),
        ("***", "arg"),
        ("int", "int_"),
        ("class", "class_"),
        ("__init__", "init"),
        ("a" * 99, "a" * 48),
    ],
)
def test_identifiers(name: str, found: str) -> None:
    assert identifier(name, "arg") == found


def test_identifiers_differ() -> None:
    assert identifiers(["a.b", "a_b", "A_B", "a_b_2", ""], "arg") == (
        "a_b",
        "a_b_2",
        "A_B_3",
        "a_b_2_2",
        "arg",
    )


def test_every_element_type_has_a_type_in_c() -> None:
    sizes = {"float": 4, "double": 8}
    for dtype in ALL:
        found = c_type(dtype)
        wide = sizes.get(found) or int(re.sub(r"\D", "", found)) // 8
        assert wide * (2 if dtype.kind == "complex" else 1) == dtype.bytes


@pytest.mark.parametrize("words", [0, 8, 80, 65536, 65544, 200_000])
def test_checksum_of_weights(words: int) -> None:
    data = np.random.default_rng(words).integers(0, 256, 8 * words, np.uint8)
    total = totals = 0
    for word in data.view(np.uint64).tolist():
        total = (total + word) % (1 << 64)
        totals = (totals + total) % (1 << 64)
    assert [n % (1 << 64) for n in sums(data)] == [total, totals]
    if words > 1:
        swapped = data.reshape(-1, 8).copy()
        swapped[[0, 1]] = swapped[[1, 0]]
        assert sums(swapped.reshape(-1)) != sums(data)


ODD = """HloModule odd, entry_computation_layout={({TYPES})->(f32[3,5]{0,1})}
ENTRY main {
{PARAMETERS}
  ROOT t = (f32[3,5]{0,1}) tuple(p0)
}
"""


def odd_model() -> str:
    """A model of many element types, a transposed array, an empty one, and a scalar."""
    types = ["f32[3,5]{0,1}", "f32[2,0]{1,0}", "f64[]"]
    types += [f"{name}[2]{{0}}" for name in ("bf16", "f16", "pred", "s4", "u8", "s64", "c64")]
    parameters = "\n".join(f"  p{n} = {t} parameter({n})" for n, t in enumerate(types))
    return ODD.replace("{TYPES}", ", ".join(types)).replace("{PARAMETERS}", parameters)


def test_a_model_of_odd_arrays(tmp_path: Path) -> None:
    exe = nw.build(nw.parse(odd_model()))
    made = exe.export_c(tmp_path / "odd")
    assert made.name == "odd" and set(made.files) == {
        str(p.relative_to(tmp_path / "odd")) for p in (tmp_path / "odd").rglob("*") if p.is_file()
    }
    header = (tmp_path / "odd/include/odd.h").read_text()
    assert "const uint16_t *p3; /* p3: bf16[2] */" in header
    assert "dimensions in memory: 1 0" in header and "real and imaginary parts" in header
    need("gcc", "g++")
    args = exe.random_arguments(1)
    for n, x in enumerate(args):
        np.save(tmp_path / f"{n}.npy", x)
    libraries = ("-Iinclude", "-Llib", "-lodd", "-lm", "-pthread")
    flags = ("-std=c99", *WARNINGS, "-fsanitize=address,undefined", "-o", tmp_path / "program")
    run("gcc", "main.c", *flags, *libraries, cwd=tmp_path / "odd")
    inputs = [tmp_path / f"{n}.npy" for n in range(len(args))]
    run(tmp_path / "program", "-o", tmp_path, *inputs)
    found = np.load(tmp_path / "result_0.npy")
    assert (
        found.shape == (3, 5) and found.tobytes() == np.ascontiguousarray(exe(*args)[0]).tobytes()
    )
    (tmp_path / "odd/all.cpp").write_text(
        '#include "odd.hpp"\nint main() { odd::model m; (void)m; return 0; }\n'
    )
    run("g++", "all.cpp", "-std=c++17", *WARNINGS, *libraries, "-o", "all", cwd=tmp_path / "odd")
    run(tmp_path / "odd" / "all")


NAMED = """HloModule a_model
ENTRY main { ROOT p = f32[2] parameter(0) }
"""


def test_names_do_not_leave_their_comments(tmp_path: Path) -> None:
    module = nw.parse(NAMED)
    exe = nw.lower(module).compile()
    spec = exe.plan.params[0]
    object.__setattr__(spec, "name", 'x */ int y; /* "\\\n?\u2028')
    exe.export_c(tmp_path / "m")
    need("gcc")
    header = (tmp_path / "m/include/a_model.h").read_text()
    assert '*x_int_y; /* x * / int y; / * "____: f32[2] */' in header
    flags = ("-std=c99", *WARNINGS, "-Iinclude", "-Llib", "-la_model", "-pthread")
    run("gcc", "main.c", *flags, "-o", "program", cwd=tmp_path / "m")
    assert "input 0: x */ int y" in run(tmp_path / "m" / "program", status=2)


def test_arrays_that_are_called_as_parts_of_the_wrapper(tmp_path: Path) -> None:
    need("gcc", "g++")
    names = ("span", "inputs", "error", "results", "model", "NULL", "instance")
    parameters = "\n".join(f" {name} = f32[2] parameter({n})" for n, name in enumerate(names))
    text = f"HloModule model\nENTRY e {{\n{parameters}\n ROOT outputs = f32[2] negate(NULL) }}"
    nw.build(nw.parse(text)).export_c(tmp_path / "m")
    source = '#include "model.hpp"\nint main() { model::model m; m.run({}); }\n'
    (tmp_path / "m" / "m.cpp").write_text(source)
    for compiler, file in (("g++", "m.cpp"), ("gcc", "main.c")):
        run(compiler, "-fsyntax-only", "-Iinclude", file, cwd=tmp_path / "m")


def test_a_model_without_arguments_or_results(tmp_path: Path) -> None:
    need("gcc", "g++")
    for name, text in {
        "none_in": "ENTRY main { ROOT c = f32[2] constant({1, 2}) }",
        "none_out": "ENTRY main { p = f32[2] parameter(0)  ROOT t = () tuple() }",
    }.items():
        folder = tmp_path / name
        nw.build(nw.parse(f"HloModule {name}\n{text}")).export_c(folder)
        libraries = ("-Iinclude", "-Llib", f"-l{name}", "-lm", "-pthread")
        run("gcc", "main.c", "-std=c99", *WARNINGS, *libraries, "-o", "c", cwd=folder)
        run(folder / "c", "-z", "-o", folder)
        (folder / "m.cpp").write_text(
            f'#include "{name}.hpp"\nint main() {{ {name}::model m; (void)m; return 0; }}\n'
        )
        run("g++", "m.cpp", "-std=c++17", *WARNINGS, *libraries, "-o", "cpp", cwd=folder)
    assert np.load(tmp_path / "none_in" / "result_0.npy").tolist() == [1, 2]


@pytest.mark.parametrize("name", ["a b", "1st", "int", "_x", "ä"])
def test_a_name_must_be_an_identifier(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="identifier of C"):
        nw.build(nw.parse(NAMED)).export_c(tmp_path / "m", name=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["m", "pthread", "stdio", "sem"])
def test_a_name_of_the_system_is_left_to_it(name: str, tmp_path: Path) -> None:
    """Not ``-lm``, ``<stdio.h>`` or ``sem_init`` of a model, by its own name or a given one."""
    exe = nw.build(nw.parse(NAMED))
    with pytest.raises(ArgumentError, match="the system has a library") as refused:
        exe.export_c(tmp_path / "m", name=name)
    assert f"model_{name}" in refused.value.hint and list(tmp_path.iterdir()) == []
    assert library_name(name) == f"model_{name}"
