"""The tasks of a model: what is tuned, how often it runs, how much work it is.

The name is loaded on first use: building a model extracts no tasks.
"""

from typing import TYPE_CHECKING

from ...ir.lazy import loader

if TYPE_CHECKING:
    from .extract import from_func as from_func

__getattr__ = loader(__name__, {"from_func": ".extract:from_func"})
