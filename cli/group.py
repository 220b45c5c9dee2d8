"""Groups of commands: unknown ones draw a suggestion, known ones load when they are asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import ClassVar

import click


class Suggesting(click.Group):
    """A group whose unknown commands are answered with the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; a usage error suggests the nearest known name."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"commands: {', '.join(known)}"
            raise click.UsageError(f"no such command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Suggesting):
    """Loads a command's module when the command runs, so that ``--version`` stays quick.

    ``homes`` names the module of each command, relative to this package.
    """

    homes: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, without loading them."""
        return list(self.homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load and return a command; None for an unknown name."""
        home = self.homes.get(cmd_name)
        if home is None:
            return None
        command: click.Command = getattr(importlib.import_module(home, __package__), cmd_name)
        return command
