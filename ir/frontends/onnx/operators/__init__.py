"""The families of operators. Importing this package fills the table."""

from __future__ import annotations

from . import activations as activations
from . import elementwise as elementwise
