"""The `nestwright` command."""
