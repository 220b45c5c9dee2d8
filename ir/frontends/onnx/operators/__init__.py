"""The families of operators. Importing this package fills the table."""

from __future__ import annotations

from . import activations as activations
from . import casts as casts
from . import constants as constants
from . import convolution as convolution
from . import elementwise as elementwise
from . import indexing as indexing
from . import normalization as normalization
from . import pooling as pooling
from . import products as products
from . import reductions as reductions
from . import shapes as shapes
