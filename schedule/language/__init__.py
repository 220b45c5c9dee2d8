"""The scheduling language: the ``Schedule`` object, its methods and traces."""
