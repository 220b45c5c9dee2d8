"""C libraries on the command line: the options of `build --format c`, and the sizes it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..ir.errors import ArgumentError

if TYPE_CHECKING:
    from ..codegen.plan.interface import CLibrary

FORMATS = ("nw", "c")


@dataclass(frozen=True, slots=True)
class LibraryOptions:
    """Options of ``Executable.export_c``."""

    options: dict[str, Any]


def library_options() -> Callable[[Any], Any]:
    """``--format``, ``--weights-as`` and ``--name``; ``read_library`` reads them."""
    options = (
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            default="nw",
            show_default=True,
            help="What is written: a file for `nestwright run`, or a folder with a C library.",
        ),
        click.option(
            "--weights-as",
            type=click.Choice(["object", "file"]),
            help="Where a C library has its weights: in itself (default), or in a file to map.",
        ),
        click.option("--name", help="Name of a C library, with which its symbols begin."),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def read_library(
    form: str, weights_as: str | None, name: str | None, output: str | None, target: str
) -> LibraryOptions | None:
    """Return the options of the C library that is asked for; None if it is not.

    ``ArgumentError`` for options without the format they belong to, or the format without ``-o``;
    ``UnsupportedError`` for a target that has no C libraries.
    """
    if form != "c":
        for option, value in {"--weights-as": weights_as, "--name": name}.items():
            if value is not None:
                why = "only C libraries have this option"
                raise ArgumentError(f"{option} {value}", why, hint="add --format c")
        return None
    if output is None:
        raise ArgumentError("--format c", "a C library is a folder", hint="name it: -o DIR")
    from ..codegen.export.checks import require_target
    from ..ir.target import Target

    require_target(Target.parse(target))
    return LibraryOptions({"name": name or "", "weights": weights_as or "object"})


def library_lines(made: CLibrary | None) -> list[str]:
    """Return the sizes of a library as a line of text; none without one."""
    if made is None:
        return []
    sizes = {
        "code": made.code_bytes,
        "weights": made.weights_bytes,
        "arena": made.arena_bytes,
        "an instance with its arena": made.memory_bytes,
    }
    listed = ", ".join(f"{what} {size:,} bytes" for what, size in sizes.items())
    return [f"library {made.name}: {listed}"]
