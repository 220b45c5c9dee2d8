"""HLO modules as text: ``parse`` reads what XLA prints, ``show`` prints what ``parse`` reads."""

from .parser import parse as parse
from .printer import show as show
