"""The kinds of targets: a folder and a row each."""
