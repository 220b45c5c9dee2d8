"""The families of operators. Importing this package fills the table."""

from __future__ import annotations

from . import activations as activations
from . import attention as attention
from . import casts as casts
from . import constants as constants
from . import control as control
from . import convolution as convolution
from . import elementwise as elementwise
from . import indexing as indexing
from . import normalization as normalization
from . import pooling as pooling
from . import products as products
from . import recurrent as recurrent
from . import reductions as reductions
from . import selection as selection
from . import sequences as sequences
from . import shapes as shapes
from . import suppression as suppression
from .images import regions as regions
from .images import resize as resize
from .images import sampling as sampling
from .quantized import integers as integers
from .quantized import linear as linear
