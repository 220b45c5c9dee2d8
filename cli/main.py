"""The command's front door: the group, its exit statuses, and how an error is told."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from ..ir.errors import NestwrightError

OURS = 3
INTERRUPTED = 130

_HOMES = {
    "tune": ".tune",
    "build": ".build",
    "run": ".run",
    "bench": ".bench",
    "show": ".show",
    "log": ".log",
    "targets": ".machine",
    "doctor": ".machine",
}


class LazyGroup(click.Group):
    """Loads a command's module when the command is asked for, so that ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _HOMES.get(cmd_name)
        if home is None:
            return None
        module = importlib.import_module(home, __package__)
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _HOMES:
            import difflib

            near = difflib.get_close_matches(args[0], _HOMES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nestwright", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def nestwright(debug: bool) -> None:
    """Compile and tune tensor programs: HLO in, native code out."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status.

    0 success, 1 the answer is no, 2 unusable input or no such device, 3 a fault of ours,
    130 interrupted.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    try:
        status = nestwright.main(args, prog_name="nestwright", standalone_mode=False)
    except click.exceptions.Abort:
        return _told("interrupted", INTERRUPTED)
    except KeyboardInterrupt:
        return _told("interrupted", INTERRUPTED)
    except click.ClickException as e:
        e.show()
        return 2
    except NestwrightError as e:
        if debug:
            traceback.print_exc()
        return _told(str(e), e.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as e:
        if debug:
            traceback.print_exc()
        where = f" {e.filename!r}" if e.filename else ""
        return _told(f"cannot use{where}: {e.strerror or e}", 2)
    except Exception as e:
        if debug:
            traceback.print_exc()
        told = f"a fault of nestwright's own: {type(e).__name__}: {e}"
        return _told(told + "\n  hint: repeat with --debug for the traceback, and report it", OURS)
    return status if isinstance(status, int) else 0


def _told(message: str, status: int) -> int:
    click.echo(f"nestwright: {message}", err=True)
    return status
