"""The programs that rungs build: HLO, choices that force a kernel, files of built ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from checkout import ROOT

from .rung import Program

LARGE_TILE = {
    "tile_m": 256,
    "tile_n": 128,
    "tile_k": 64,
    "warps_m": 4,
    "warps_n": 2,
    "stages": 4,
    "split": 1,
    "join": "last",
    "group": 8,
    "pack": 0,
}
GROUP_TILE = {
    "tile_m": 128,
    "tile_n": 128,
    "tile_k": 64,
    "groups_m": 2,
    "groups_n": 1,
    "stages": 3,
    "split": 1,
    "join": "last",
    "group": 1,
    "pack": 0,
    "copiers": 4,
    "bulk": 1,
    "results": 1,
    "turns": 1,
}
RESULTS = {"f16": "f32", "bf16": "f32", "tf32": "f32", "s8": "s32"}
COMBINERS = "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"


def elementwise(count: int) -> Program:
    """x * y + x."""
    shape = f"f32[{count}]"
    return _program(
        f"elementwise_{count}",
        f"ENTRY main {{ x = {shape} parameter(0)\n  y = {shape} parameter(1)\n"
        f"  p = {shape} multiply(x, y)\n  ROOT r = {shape} add(p, x) }}\n",
    )


def row_sums(columns: int) -> Program:
    """Return the sum of each of 33 rows, and of everything."""
    shape = f"f32[33,{columns}]"
    return _program(
        f"row_sums_{columns}",
        f"{COMBINERS}ENTRY main {{ x = {shape} parameter(0)\n  zero = f32[] constant(0)\n"
        "  r = f32[33] reduce(x, zero), dimensions={1}, to_apply=add\n"
        "  t = f32[] reduce(x, zero), dimensions={0,1}, to_apply=add\n"
        "  ROOT both = (f32[33], f32[]) tuple(r, t) }\n",
    )


def softmax(columns: int) -> Program:
    """Return the example's softmax over 140 rows, more than there are multiprocessors."""
    text = (ROOT / "examples" / "softmax.hlo").read_text()
    text = text.replace("[16,64]", f"[140,{columns}]").replace("f32[16]{0}", "f32[140]{0}")
    name = f"softmax_140_{columns}"
    return Program(name, re.sub(r"HloModule \w+", f"HloModule {name}", text))


def product(
    kind: str, m: int, n: int, k: int, choices: Mapping[str, int | str] | None = None
) -> Program:
    """Return a product of matrices on tensor cores, with results of the sums' own type."""
    dtype = "f32" if kind == "tf32" else kind
    return _program(
        f"product_{kind}_{m}_{n}_{k}",
        f"ENTRY main {{ a = {dtype}[{m},{k}] parameter(0)\n  b = {dtype}[{k},{n}] parameter(1)\n"
        f"  ROOT c = {RESULTS[kind]}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0} }\n",
        "-tf32=1" if kind == "tf32" else "",
        choices or {},
    )


def rounded_product(m: int, n: int, k: int) -> Program:
    """Return a product of matrices of f16 with results of f16, by warp groups."""
    made = _program(
        f"rounded_product_{m}_{n}_{k}",
        f"ENTRY main {{ a = f16[{m},{k}] parameter(0)\n  b = f16[{k},{n}] parameter(1)\n"
        f"  ROOT c = f16[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0} }\n",
        choices=GROUP_TILE,
    )
    return replace(made, sketch="gpu_wgmma")


def chain(size: int) -> Program:
    """Two products of f32 with a reduction between: several kernels, one run."""
    s, row = f"f32[{size},{size}]", f"f32[{size}]"
    return _program(
        f"chain_{size}",
        f"{COMBINERS}ENTRY main {{ x = {s} parameter(0)\n  w = {s} parameter(1)\n"
        "  zero = f32[] constant(0)\n"
        f"  p = {s} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"  r = {row} reduce(p, zero), dimensions={{1}}, to_apply=add\n"
        f"  rs = {s} broadcast(r), dimensions={{0}}\n  d = {s} subtract(p, rs)\n"
        f"  ROOT q = {s} dot(d, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}\n",
    )


def doubling(size: int) -> Program:
    """Doubles a vector until its first element is above a limit: as many turns as the data ask."""
    v = f"f32[{size}]"
    return _program(
        f"doubling_{size}",
        f"more {{ s = ({v}, s32[], f32[]) parameter(0)\n  v = {v} get-tuple-element(s), index=0\n"
        "  top = f32[] get-tuple-element(s), index=2\n"
        f"  f = f32[1] slice(v), slice={{[0:1]}}\n  e = f32[] reshape(f)\n"
        "  ROOT r = pred[] compare(e, top), direction=LE }\n"
        f"twice {{ s = ({v}, s32[], f32[]) parameter(0)\n"
        f"  v = {v} get-tuple-element(s), index=0\n  n = s32[] get-tuple-element(s), index=1\n"
        f"  top = f32[] get-tuple-element(s), index=2\n  w = {v} add(v, v)\n"
        "  one = s32[] constant(1)\n  m = s32[] add(n, one)\n"
        f"  ROOT r = ({v}, s32[], f32[]) tuple(w, m, top) }}\n"
        f"ENTRY main {{ v = {v} parameter(0)\n  top = f32[] parameter(1)\n"
        f"  n = s32[] constant(0)\n  s = ({v}, s32[], f32[]) tuple(v, n, top)\n"
        f"  w = ({v}, s32[], f32[]) while(s), condition=more, body=twice\n"
        f"  a = {v} get-tuple-element(w), index=0\n  b = s32[] get-tuple-element(w), index=1\n"
        f"  ROOT r = ({v}, s32[]) tuple(a, b) }}\n",
    )


def turned(size: int) -> Program:
    """x transposed plus x: wrong where the result takes x's place while it is read."""
    s = f"f32[{size},{size}]"
    return _program(
        f"turned_{size}",
        f"ENTRY main {{ x = {s} parameter(0)\n  t = {s} transpose(x), dimensions={{1,0}}\n"
        f"  ROOT r = {s} add(t, x) }}\n",
    )


def tripled(size: int) -> Program:
    """3 x for a square of f32."""
    s = f"f32[{size},{size}]"
    return _program(
        f"tripled_{size}",
        f"ENTRY main {{ x = {s} parameter(0)\n  y = {s} add(x, x)\n  ROOT r = {s} add(x, y) }}\n",
    )


def numbers(count: int) -> Program:
    """Return the numbers from a given one on: a result that can be large from one that is not."""
    s = f"s32[{count}]"
    return _program(
        f"numbers_{count}",
        f"ENTRY main {{ x = s32[] parameter(0)\n  i = {s} iota(), iota_dimension=0\n"
        f"  xs = {s} broadcast(x), dimensions={{}}\n  ROOT r = {s} add(i, xs) }}\n",
    )


def _program(
    name: str, body: str, options: str = "", choices: Mapping[str, int | str] | None = None
) -> Program:
    return Program(name, f"HloModule {name}\n{body}", options, choices or {})


def build(program: Program, spec: str) -> Any:
    """Return the executable of a program for a target such as ``cuda -arch=sm_90``."""
    from nestwright.codegen.driver.build import build as build_module
    from nestwright.ir.hlo.text import parse
    from nestwright.ir.target import Target

    target = Target.parse(f"{spec} {program.options}".strip())
    module = parse(program.hlo, program.name)
    traces = forced(program, target) if program.choices else {}
    return build_module(module, target, schedules=traces)


def forced(program: Program, target: Any) -> dict[str, Any]:
    """Traces that give a program's products on tensor cores its choices."""
    from nestwright.codegen.plan.groups import fuse_module
    from nestwright.ir.hlo.passes.pipeline import optimize
    from nestwright.ir.hlo.text import parse
    from nestwright.schedule.language.schedule import Schedule
    from nestwright.schedule.sketches.generate import generate
    from nestwright.te.from_hlo import lower_group

    found: dict[str, Any] = {}
    for key, group in fuse_module(optimize(parse(program.hlo))).distinct.items():
        func = lower_group(group.computation, "main", target.vectors)
        for sketch in generate(func, target):
            if sketch.name.startswith(f"{program.sketch}@") and sketch.valid(program.choices):
                schedule = Schedule(func)
                sketch.apply(schedule, program.choices)
                found[key] = schedule.trace
    if not found:
        raise ValueError(f"{program.name}: no product takes the choices {dict(program.choices)}")
    return found


def save(program: Program, spec: str, folder: Path) -> Path:
    """Build a program and write it where ``load`` looks for it."""
    place = folder / f"{program.name}.nw"
    build(program, spec).save(place)
    return place


def load(program: Program, spec: str, folder: Path) -> Any | None:
    """Return the built program of a folder; None where there is none of this text for this
    target.
    """
    from nestwright.codegen.driver.artifact import load as load_artifact
    from nestwright.codegen.plan.notes import HLO
    from nestwright.ir.hlo.text import parse, show
    from nestwright.ir.target import Target

    place = folder / f"{program.name}.nw"
    if not place.is_file():
        return None
    exe = load_artifact(place)
    same = exe.bundle.target.key == Target.parse(f"{spec} {program.options}".strip()).key
    text = exe.bundle.notes.get(HLO, "")
    return exe if same and text == show(parse(program.hlo)) else None
