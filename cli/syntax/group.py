"""Groups of commands, which answer an unknown one with a suggestion."""

from __future__ import annotations

import difflib

import click


class Suggesting(click.Group):
    """A group whose unknown commands are answered with the nearest known one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, the help is a usage error in every click."""
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(ctx.get_help(), ctx)
        return super().parse_args(ctx, args)

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
