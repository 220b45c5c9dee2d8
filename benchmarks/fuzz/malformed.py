"""Random HLO text that follows the grammar and is seldom well formed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_TYPES = ("f32", "s32", "pred", "bf16", "u8", "c64", "f8e4m3fn", "s4", "f64")
_UNARY = ("negate", "exponential", "not", "copy", "tanh", "sqrt", "convert", "bitcast-convert")
_BINARY = ("add", "multiply", "divide", "maximum", "shift-left", "and", "power", "atan2")
_DIMS = ((), (3,), (2, 3), (1,), (0,), (4, 1, 2), (2, 2), (1 << 40,), (3, 3, 3, 3))


def random_hlo(rng: Random) -> str:
    """HLO text of a small module that is grammatical, and often not well formed."""
    lines: list[str] = []
    shapes: dict[str, str] = {}
    count = rng.randint(1, 10)
    for n in range(count):
        name = f"v{n}"
        shape = f"{rng.choice(_TYPES)}[{','.join(map(str, rng.choice(_DIMS)))}]"
        known = list(shapes)
        row = _instruction(rng, shape, known, shapes, n)
        shapes[name] = shape
        lines.append(f"  {'ROOT ' if n == count - 1 else ''}{name} = {row}")
    body = "\n".join(lines)
    add = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }"
    return f"HloModule random\n\n{add}\n\nENTRY main {{\n{body}\n}}\n"


def _instruction(
    rng: Random, shape: str, known: Sequence[str], shapes: dict[str, str], number: int
) -> str:
    if not known or rng.random() < 0.2:
        return f"{shape} parameter({rng.choice((number, 0, number, 1))})"
    x, y = rng.choice(known), rng.choice(known)
    same = shapes[x]
    dims = ",".join(str(rng.randint(-1, 3)) for _ in range(rng.randint(0, 3)))
    low, high, step = rng.randint(-3, 2), rng.randint(-3, 4), rng.randint(-1, 2)
    choices = (
        f"{same} {rng.choice(_UNARY)}({x})",
        f"{same} {rng.choice(_BINARY)}({x}, {y})",
        f"{shape} {rng.choice(_BINARY)}({x}, {x})",
        f"{shape} broadcast({x}), dimensions={{{dims}}}",
        f"{shape} reshape({x})",
        f"{same} transpose({x}), dimensions={{{dims}}}",
        f"{shape} reduce({x}, {y}), dimensions={{{dims}}}, to_apply=sum",
        f"{shape} slice({x}), slice={{[{low}:{high}:{step}]}}",
        f"{shape} pad({x}, {y}), padding={low}_{high}_{step}",
        f"{shape} dot({x}, {y}), lhs_contracting_dims={{{dims}}}, rhs_contracting_dims={{{dims}}}",
        f"{shape} iota(), iota_dimension={rng.randint(-1, 3)}",
        f"{shape} concatenate({x}, {y}), dimensions={{{dims}}}",
        f"{shape} reduce-window({x}, {y}), window={{size={high} stride={step} "
        f"pad={low}_{step}}}, to_apply=sum",
        f"{shape} constant({{{', '.join(str(rng.randint(-9, 9)) for _ in range(3))}}})",
        f"({same}, {shapes[y]}) tuple({x}, {y})",
        f"{shape} get-tuple-element({x}), index={rng.randint(-1, 2)}",
        f"{shape} gather({x}, {y}), offset_dims={{{dims}}}, collapsed_slice_dims={{}}, "
        f"start_index_map={{{dims}}}, index_vector_dim={rng.randint(0, 2)}, slice_sizes={{{dims}}}",
        f"{shape} while({x}), condition=sum, body=sum",
        f"{shape} sort({x}, {y}), dimensions={{{dims}}}, to_apply=sum",
        f"{shape} convolution({x}, {y}), window={{size=3}}, dim_labels=b0f_0io->b0f",
    )
    return rng.choice(choices)
