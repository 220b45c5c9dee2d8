"""Random dots and convolutions: any dimensions, groups, dilations and mixtures of types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
PAIRS = [
    ("f32", "f32", "f32"),
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("bf16", "bf16", "bf16"),
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "f32"),
    ("f16", "f16", "f32"),
    ("f32", "f32", "f64"),
    ("bf16", "f32", "f32"),
    ("s8", "s8", "s32"),
    ("u8", "s8", "s32"),
    ("u8", "u8", "u32"),
    ("s32", "s32", "s32"),
    ("s8", "s8", "s8"),
    ("s16", "s16", "s64"),
    ("u32", "u32", "u32"),
    ("s64", "s64", "s64"),
    ("pred", "pred", "pred"),
    ("u16", "u16", "u16"),
    ("s8", "s8", "f32"),
    ("f32", "f32", "bf16"),
    ("pred", "pred", "s32"),
]


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def listed(name: str, dims: Sequence[int]) -> str:
    return f"{name}={{{','.join(map(str, dims))}}}"


def dot(m: Any) -> None:
    a, b, to = m.pick(PAIRS)
    batch, terms = m.dims(m.number(0, 2), 3), m.dims(m.number(0, 2))
    left, right = m.dims(m.number(0, 2)), m.dims(m.number(0, 2))
    sides: list[tuple[list[int], list[int], list[int], list[int]]] = []
    for free in (left, right):
        labels = [*range(len(batch)), *(10 + n for n in range(len(terms)))]
        labels += [20 + n for n in range(len(free))]
        mixed = [labels[k] for k in m.order(len(labels))]
        own = [k for k in mixed if k >= 20]  # free ones keep the order in which they stand
        size = {**dict(enumerate(batch)), **{10 + n: d for n, d in enumerate(terms)}}
        size |= {20 + n: d for n, d in enumerate(free)}
        sides.append(
            (
                [size[k] for k in mixed],
                [mixed.index(k) for k in range(len(batch))],
                [mixed.index(10 + k) for k in range(len(terms))],
                [size[k] for k in own],
            )
        )
    x, y = m.parameter(a, sides[0][0]), m.parameter(b, sides[1][0])
    attrs = [
        listed("lhs_batch_dims", sides[0][1]),
        listed("rhs_batch_dims", sides[1][1]),
        listed("lhs_contracting_dims", sides[0][2]),
        listed("rhs_contracting_dims", sides[1][2]),
    ]
    out = shape_of(to, [*batch, *sides[0][3], *sides[1][3]])
    m.emit(out, f"dot({x}, {y}), {', '.join(attrs)}")


def window_dim(m: Any, wild: bool) -> dict[str, int]:
    return {
        "size": m.number(1, 3),
        "stride": m.number(1, 3) if wild else 1,
        "low": m.number(-2, 2) if wild else m.number(0, 1),
        "high": m.number(-2, 2) if wild else m.number(0, 1),
        "spread": m.number(1, 3) if wild else 1,
        "apart": m.number(1, 2) if wild else 1,
        "reversal": m.number(0, 1) if wild else 0,
    }


def places(n: int, w: dict[str, int]) -> int | None:
    wide = ((n - 1) * w["spread"] + 1 if n else 0) + w["low"] + w["high"]
    reach = (w["size"] - 1) * w["apart"] + 1
    return None if wide < 0 else (wide - reach) // w["stride"] + 1 if wide >= reach else 0


def convolution(m: Any) -> None:
    m.odd = 0.0  # nobody says what padding times infinity is
    a, b, to = m.pick([p for p in PAIRS if "pred" not in p])
    rank = m.number(0, 3)
    features, batches = m.pick([(1, 1), (1, 1), (m.number(2, 3), 1), (1, m.number(2, 3))])
    batch, channels, each = m.number(1, 2) * batches, m.number(1, 3), m.number(1, 2)
    groups = features * batches
    space = m.dims(rank)
    while True:
        ws = [window_dim(m, m.chance(0.5)) for _ in range(rank)]
        found = [places(n, w) for n, w in zip(space, ws, strict=True)]
        if None not in found:
            break
    out = [n or 0 for n in found]
    parts = []
    for letters, sizes in (
        ("bf", [batch, channels * features, *space]),
        ("io", [channels, each * groups, *(w["size"] for w in ws)]),
        ("bf", [batch // batches, each * groups, *out]),
    ):
        names = [*letters, *map(str, range(rank))]
        order = m.order(rank + 2) if m.chance(0.7) else range(rank + 2)
        parts.append(("".join(names[k] for k in order), [sizes[k] for k in order]))
    x, y = m.parameter(a, parts[0][1]), m.parameter(b, parts[1][1])
    labels = f"{parts[0][0]}_{parts[1][0]}->{parts[2][0]}"

    def row(key: str) -> str:
        return "x".join(str(w[key]) for w in ws)

    pads = "x".join(f"{w['low']}_{w['high']}" for w in ws)
    window = (
        f"window={{size={row('size')} stride={row('stride')} pad={pads} "
        f"lhs_dilate={row('spread')} rhs_dilate={row('apart')} rhs_reversal={row('reversal')}}}, "
    )
    counts = f"feature_group_count={features}, batch_group_count={batches}"
    m.emit(
        shape_of(to, parts[2][1]),
        f"convolution({x}, {y}), {window if rank else ''}dim_labels={labels}, {counts}",
    )


@pytest.mark.parametrize("generator", [dot, convolution])
def test_agrees(agrees: Callable[..., None], generator: Callable[[Any], None]) -> None:
    agrees(generator, 18, simulated=2)
