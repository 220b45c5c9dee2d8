"""``python -m nestwright``, and the command ``nestwright``."""

import sys


def main() -> int:
    """Run the command and return its exit status; quietly 130 while it is still imported."""
    try:
        from .cli.main import main as command

        return command()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("nestwright: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
