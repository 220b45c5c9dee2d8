"""HLO graph IR: nodes, text, verifier, interpreter, passes, FuseOps.

The names are loaded on first use, so that the nodes alone cost nothing.
"""

from typing import TYPE_CHECKING

from ..lazy import loader

if TYPE_CHECKING:
    from .analysis.verify import verify as verify
    from .passes.pipeline import optimize as optimize
    from .passes.pipeline import optimize_narrow as optimize_narrow
    from .passes.prepare.freeze_parameters import freeze as freeze
    from .text.content import digest as digest
    from .text.parser import parse as parse
    from .text.printer import show as show

__all__ = ["digest", "freeze", "optimize", "optimize_narrow", "parse", "show", "verify"]

__getattr__ = loader(
    __name__,
    {
        "digest": ".text.content:digest",
        "freeze": ".passes.prepare.freeze_parameters:freeze",
        "optimize": ".passes.pipeline:optimize",
        "optimize_narrow": ".passes.pipeline:optimize_narrow",
        "parse": ".text.parser:parse",
        "show": ".text.printer:show",
        "verify": ".analysis.verify:verify",
    },
)
