"""Broken inputs, made from whole ones: random edits of bytes and of tokens, and random programs.

Everything is drawn from a seeded generator, so that a case is known by its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pytest

NUMBERS = (
    b"0", b"1", b"-1", b"2147483647", b"-2147483648", b"4294967296", b"9223372036854775807",
    b"-9223372036854775808", b"99999999999999999999999", b"1e999", b"-inf", b"nan", b"0x1p-9999",
    b"1048576", b"65536", b"3",
)  # fmt: skip
_TOKEN = re.compile(rb"[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_NUMBER = re.compile(rb"-?\d+")
_EDITS = 4  # of one case, at most
_LONGEST = 1 << 16

Edit = Callable[[Random, bytes, Sequence[bytes]], bytes]


def mutate(rng: Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """``data`` with a few edits; ``others`` lend slices, ``words`` are put in anywhere."""
    for _ in range(rng.randint(1, _EDITS)):
        edit = rng.choice(EDITS)
        data = edit(rng, data, words if edit in (_insert_word, _replace_token) else others)
    return data[:_LONGEST]


def _span(rng: Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 16, 64, 256)))


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _set(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _double(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 50)) + data[end:]


def _truncate(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    other = rng.choice(others)
    first, last = _span(rng, other)
    return data[:start] + other[first:last] + data[end:]


def _number(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    at = rng.choice(found)
    return data[: at.start()] + rng.choice(NUMBERS) + data[at.end() :]


def _insert_word(rng: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(words) + data[at:]


def _replace_token(rng: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    tokens = _TOKEN.findall(data)
    if not tokens:
        return data
    at = rng.randrange(len(tokens))
    tokens[at] = rng.choice([rng.choice(tokens), rng.choice(words)])
    return b"".join(tokens)


def _swap_tokens(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    tokens = _TOKEN.findall(data)
    if len(tokens) < 2:
        return data
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]
    return b"".join(tokens)


def _nest(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    opening, closing = rng.choice(((b"(", b")"), (b"{", b"}"), (b"[", b"]"), (b"<", b">")))
    deep = rng.choice((1, 10, 2000))
    return data[:at] + opening * deep + closing * rng.choice((deep, 0)) + data[at:]


EDITS: tuple[Edit, ...] = (
    _flip, _set, _cut, _cut, _double, _truncate, _splice, _number, _number, _insert_word,
    _replace_token, _replace_token, _swap_tokens, _nest,
)  # fmt: skip

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


@dataclass(frozen=True)
class Fuzz:
    """What the tests draw their cases with."""

    mutate: Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes] = mutate
    random_hlo: Callable[[Random], str] = random_hlo


@pytest.fixture(scope="session")
def fuzz() -> Fuzz:
    """The drawing of broken inputs."""
    return Fuzz()
