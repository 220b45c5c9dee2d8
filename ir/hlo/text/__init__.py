"""HLO modules as text: ``parse`` reads XLA's text, ``show`` prints text that ``parse`` reads."""

from .parser import parse as parse
from .printer import show as show
