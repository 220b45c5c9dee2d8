"""The forms that command lines share: groups of commands, and options of several commands."""
