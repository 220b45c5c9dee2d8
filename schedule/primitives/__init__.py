"""The primitives. Importing the package imports its modules, which declare them."""

from importlib import import_module
from pkgutil import walk_packages

for _found in walk_packages(__path__, f"{__name__}."):
    import_module(_found.name)
