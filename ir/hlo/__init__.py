"""HLO graph IR: nodes, text, verifier, interpreter, passes, FuseOps."""

from .text import parse as parse
from .text import show as show
