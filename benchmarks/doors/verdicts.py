"""What came of a case of somebody else's tests: its verdict, and tables of many."""

from __future__ import annotations

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 120  # for one case


class Case(NamedTuple):
    """One test: its name, the operators of its model, its verdict and the reason."""

    name: str
    operators: tuple[str, ...]
    verdict: str
    why: str = ""


def verdict(run: Callable[[], None]) -> tuple[str, str]:
    """Return what came of ``run``, which raises ``AssertionError`` where results differ.

    It is right, wrong, refused (a typed error) or failed (any other).
    """
    from nestwright.ir.errors import NestwrightError

    try:
        with limited(SECONDS):
            run()
    except NestwrightError as error:
        return "refused", " ".join(str(error).split())[:400]
    except AssertionError as error:
        return "wrong", " ".join(str(error).split())[:400]
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"[:400]
    return "right", ""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise ``TimeoutError`` in a block that takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def told(cases: Sequence[Case]) -> None:
    """Print the numbers by operator, for those with a case that is not right, and in all."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        name = case.operators[0] if len(case.operators) == 1 else "(several)"
        by_operator[name][case.verdict] += 1
    for name, counts in sorted(by_operator.items()):
        if counts["right"] < counts.total():
            print(f"{name:32} {counts['right']:4} of {counts.total():4}")
    total = Counter(case.verdict for case in cases)
    right = total["right"]
    print(f"right {right} of {len(cases)} ({right / max(len(cases), 1):.1%}); {dict(total)}")


def written(cases: Sequence[Case], path: Path | None) -> None:
    """Write every case to a file, if there is one."""
    if path:
        path.write_text(json.dumps([c._asdict() for c in cases], indent=1) + "\n")
