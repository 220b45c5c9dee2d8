"""The kinds of targets, a file each."""
