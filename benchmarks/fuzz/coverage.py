"""A search for inputs that reach new code, guided by atheris, which has to be installed."""

from __future__ import annotations

import sys
from random import Random

from .inputs import Format


def search(format_: Format, seed: int, seconds: int) -> None:
    """Look for ``seconds``; what escapes ends the process with the input written down."""
    import atheris

    def mutator(data: bytes, most: int, number: int) -> bytes:
        """Half of the inputs are edits of atheris's own, half are edits by format."""
        rng = Random(number ^ seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return format_.make(rng)[:most]

    def test(data: bytes) -> None:
        outcome = format_.outcome(data)
        assert not outcome.startswith("BAD"), outcome

    atheris.instrument_all()
    options = [sys.argv[0], f"-max_total_time={seconds}", f"-seed={seed + 1}", "-max_len=65536"]
    atheris.Setup(options, test, custom_mutator=mutator)
    atheris.Fuzz()
