"""The wire format of protocol buffers: a message as its fields, every byte of it checked.

Only the format is known here: varints, fixed words, and spans of bytes that are strings, packed
numbers or messages (https://protobuf.dev/programming-guides/encoding). A message inside another
is looked into when it is asked for, so fields that nobody reads cost nothing.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...errors import ParseError

MAX_DEPTH = 64
VARINT_BYTES = 10

Span: TypeAlias = tuple[int, int]
Value: TypeAlias = "int | bytes | Span"
"""A varint, a fixed word of 4 or 8 bytes, or where a span of bytes starts and ends."""


class Message:
    """The fields of one message; accessors raise ``ParseError`` with the place in the file.

    A field that is absent has proto3's default: zero, false, nothing.
    """

    __slots__ = ("data", "depth", "end", "fields", "source", "start")

    def __init__(
        self, data: bytes, source: str, start: int = 0, end: int | None = None, depth: int = 0
    ) -> None:
        self.data = data
        self.source = source
        self.start = start
        self.end = len(data) if end is None else end
        self.depth = depth
        if depth > MAX_DEPTH:
            self.fail("messages are nested too deep", f"over {MAX_DEPTH} levels")
        self.fields = self._split()

    def fail(self, what: str, why: str = "", hint: str = "", at: int | None = None) -> NoReturn:
        """Raise a ``ParseError`` at a byte, the message's first by default."""
        raise ParseError(what, why, f"{self.source}:byte {self.start if at is None else at}", hint)

    def _split(self) -> dict[int, list[Value]]:
        fields: dict[int, list[Value]] = {}
        data, at, end = self.data, self.start, self.end
        while at < end:
            place = at
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = self._varint(place, end)
            number, kind = tag >> 3, tag & 7
            value: Value
            match kind:
                case 0:
                    value, at = self._varint(at, end)
                case 2:
                    size, begin = self._varint(at, end)
                    at = begin + size
                    value = (begin, at)
                case 5:
                    value, at = data[at : at + 4], at + 4
                case 1:
                    value, at = data[at : at + 8], at + 8
                case _:
                    self.fail("not a protocol buffer", f"wire type {kind} is unknown", at=place)
            if number == 0:
                self.fail("not a protocol buffer", "a field has the number 0", at=place)
            if at > end:
                why = f"field {number} goes {at - end} bytes beyond its message"
                self.fail("the file is cut short", why, at=place)
            fields.setdefault(number, []).append(value)
        return fields

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """The number that starts at a byte, and the byte after it."""
        data, value = self.data, 0
        for n in range(VARINT_BYTES):
            if at + n >= end:
                self.fail("the file is cut short", "a number has no end", at=at)
            byte = data[at + n]
            value |= (byte & 127) << 7 * n
            if byte < 128:
                if value >> 64:
                    break
                return value, at + n + 1
        self.fail("not a protocol buffer", "a number has more than 64 bits", at=at)

    def _one(self, number: int, kind: type) -> Any:
        """The last value of a field; None where it is absent."""
        values = self.fields.get(number)
        if values is None:
            return None
        if not isinstance(values[-1], kind):
            self._wrong_kind(number)
        return values[-1]

    def _wrong_kind(self, number: int) -> NoReturn:
        self.fail("not an HLO proto", f"field {number} is of another kind than HLO's")

    def has(self, number: int) -> bool:
        """True if the field is present."""
        return number in self.fields

    def integer(self, number: int) -> int:
        """A signed integer of up to 64 bits."""
        return _signed(self._one(number, int) or 0)

    def boolean(self, number: int) -> bool:
        """Return a bool; false where the field is absent."""
        return bool(self._one(number, int))

    def float32(self, number: int) -> float:
        """A float of 32 bits, the shortest decimal that rounds to it."""
        word = self._one(number, bytes)
        if word is None:
            return 0.0
        if len(word) != 4:
            self._wrong_kind(number)
        return float(str(np.frombuffer(word, "<f4")[0]))

    def raw(self, number: int) -> bytes:
        """The bytes of a field."""
        span = self._one(number, tuple)
        return b"" if span is None else self.data[span[0] : span[1]]

    def text(self, number: int) -> str:
        """A string; ``ParseError`` if it is not UTF-8."""
        try:
            return self.raw(number).decode()
        except UnicodeDecodeError as e:
            self.fail("not an HLO proto", f"field {number} is not UTF-8 at its byte {e.start}")

    def texts(self, number: int) -> list[str]:
        """All strings of a field."""
        try:
            return [self.data[a:b].decode() for a, b in self._spans(number)]
        except UnicodeDecodeError:
            self.fail("not an HLO proto", f"field {number} is not UTF-8")

    def message(self, number: int) -> Message | None:
        """A message inside this one, None where there is none."""
        spans = self._spans(number)
        if len(spans) > 1:
            self.fail("not an HLO proto", f"field {number} is given {len(spans)} times")
        return self._inner(spans[0]) if spans else None

    def messages(self, number: int) -> list[Message]:
        """All messages of a field."""
        return [self._inner(span) for span in self._spans(number)]

    def _inner(self, span: Span) -> Message:
        return Message(self.data, self.source, span[0], span[1], self.depth + 1)

    def _spans(self, number: int) -> list[Span]:
        spans: list[Span] = []
        for value in self.fields.get(number, ()):
            if not isinstance(value, tuple):
                self._wrong_kind(number)
            spans.append(value)
        return spans

    def integers(self, number: int) -> tuple[int, ...]:
        """Signed integers of up to 64 bits, packed or one by one."""
        found: list[int] = []
        for value in self.fields.get(number, ()):
            match value:
                case int():
                    found.append(_signed(value))
                case (start, end):
                    while start < end:
                        one, start = self._varint(start, end)
                        found.append(_signed(one))
                case _:
                    self._wrong_kind(number)
        return tuple(found)

    def varints(self, number: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Many packed integers at once, as their 64 bits."""
        parts = [np.zeros(0, np.uint64)]
        for value in self.fields.get(number, ()):
            match value:
                case int():
                    parts.append(np.array([value], np.uint64))
                case (start, end):
                    parts.append(self._unpack(start, end))
                case _:
                    self._wrong_kind(number)
        return np.concatenate(parts)

    def _unpack(self, start: int, end: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        if start == end:
            return np.zeros(0, np.uint64)
        data = np.frombuffer(self.data, np.uint8, end - start, start)
        last = np.flatnonzero(data < 128)
        if not last.size or last[-1] != data.size - 1:
            self.fail("the file is cut short", "a number has no end", at=start)
        first = np.concatenate([[0], last[:-1] + 1]).astype(np.int64)
        sizes = last - first + 1
        if sizes.max() > VARINT_BYTES:
            self.fail("not a protocol buffer", "a number has more than 64 bits", at=start)
        values = np.zeros(last.size, np.uint64)
        for n in range(int(sizes.max())):
            longer = np.flatnonzero(sizes > n)
            bits = (data[first[longer] + n] & 127).astype(np.uint64)
            values[longer] |= bits << np.uint64(7 * n)
        return values

    def words(self, number: int, dtype: str) -> np.ndarray[Any, Any]:
        """Packed fixed words of a NumPy type (``<f4``, ``<f8``)."""
        size = np.dtype(dtype).itemsize
        parts: list[bytes] = []
        for value in self.fields.get(number, ()):
            part = self.data[value[0] : value[1]] if isinstance(value, tuple) else value
            if not isinstance(part, bytes) or len(part) % size:
                self._wrong_kind(number)
            parts.append(part)
        return np.frombuffer(b"".join(parts), dtype)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
