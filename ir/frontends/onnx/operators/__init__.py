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
from . import microsoft as microsoft
from . import ml as ml
from . import normalization as normalization
from . import pooling as pooling
from . import products as products
from . import recurrent as recurrent
from . import reductions as reductions
from . import selection as selection
from . import sequences as sequences
from . import shapes as shapes
from . import signals as signals
from . import suppression as suppression
from . import text as text
from . import training as training
from .images import patches as patches
from .images import regions as regions
from .images import resize as resize
from .images import sampling as sampling
