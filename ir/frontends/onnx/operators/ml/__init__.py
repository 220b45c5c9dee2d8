"""Operators of ``ai.onnx.ml`` on arrays of numbers: trees, linear models, features."""

from __future__ import annotations

from . import features as features
from . import linear as linear
from . import maps as maps
from . import support as support
from . import trees as trees
