"""The scheduling language: the ``Schedule`` object, traces and how they are shown."""
