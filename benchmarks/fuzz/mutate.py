"""Broken inputs, made from whole ones: edits of bytes, tokens, JSON values and zip members."""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"2147483647",
    b"-2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"99999999999999999999999",
    b"1e999",
    b"-inf",
    b"nan",
    b"0x1p-9999",
    b"1048576",
    b"65536",
    b"3",
)
_TOKEN = re.compile(rb"[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_NUMBER = re.compile(rb"-?\d+")
_EDITS = (1, 1, 1, 2, 4)  # of one case
_LONGEST = 1 << 16

Edit: TypeAlias = Callable[[Random, bytes, Sequence[bytes]], bytes]
Json: TypeAlias = Any


def mutate(rng: Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Return ``data`` with a few edits; ``others`` lend slices, ``words`` are put in anywhere."""
    for _ in range(rng.choice(_EDITS)):
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
    _flip,
    _set,
    _cut,
    _cut,
    _double,
    _truncate,
    _splice,
    _number,
    _number,
    _insert_word,
    _replace_token,
    _replace_token,
    _swap_tokens,
    _nest,
)

ODD: tuple[Json, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    64,
    1 << 31,
    1 << 62,
    1 << 63,
    1 << 64,
    10**30,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    "",
    "x",
    "f32",
    "../../etc/passwd",
    [],
    {},
    [[]],
    {"a": 1},
    "\x00",
    "é",
    "²",
)
"""Values that stand where others are expected."""


def edit_json(rng: Random, value: Json) -> Json:
    """Return a JSON value with one to three places changed, removed, repeated or taken from
    elsewhere.
    """
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value, 200))
        if not places:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        here = holder[key]
        match rng.randrange(7):
            case 0 | 1:
                holder[key] = rng.choice(ODD)
            case 2:
                del holder[key]
            case 3:
                other, k = rng.choice(places)
                holder[key] = copy.deepcopy(other[k])
            case 4 if isinstance(here, int):
                holder[key] = here + rng.choice((-1, 1, 8, 64, -64, 1 << 20))
            case 5 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(here))
            case _ if isinstance(here, str):
                holder[key] = rng.choice((here[:-1], here + "x", here.upper(), here * 50, ""))
            case _:
                holder[key] = rng.choice(ODD)
    return value


def _places(value: Json, most: int) -> list[tuple[Any, Any]]:
    """Return every place in nested lists and dicts, of each the first ``most``."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict):
            keys: list[Any] = list(holder)
        elif isinstance(holder, list):
            keys = list(range(min(len(holder), most)))
        else:
            continue
        found += [(holder, k) for k in keys]
        waiting += [holder[k] for k in keys]
    return found


def unzip(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rezip(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def dump(value: Json) -> bytes:
    """Return a JSON value as a file holds it."""
    return json.dumps(value).encode()
