"""Tensor expressions: what every element of a tensor is, written as a Python rule.

::

    A = te.placeholder((M, K), "f32", "A")
    B = te.placeholder((K, N), "f32", "B")
    k = te.reduce_axis(K, "k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((M, N), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    func = te.create_func([A, B, D], name="main")
"""

from .compute import Reduction as Reduction
from .compute import compute as compute
from .compute import compute_many as compute_many
from .compute import max as max
from .compute import min as min
from .compute import prod as prod
from .compute import reduce as reduce
from .compute import sum as sum
from .functions import abs as abs
from .functions import acos as acos
from .functions import acosh as acosh
from .functions import asin as asin
from .functions import asinh as asinh
from .functions import atan as atan
from .functions import atan2 as atan2
from .functions import atanh as atanh
from .functions import bitcast as bitcast
from .functions import cast as cast
from .functions import cbrt as cbrt
from .functions import ceil as ceil
from .functions import clamp as clamp
from .functions import const as const
from .functions import cos as cos
from .functions import cosh as cosh
from .functions import equal as equal
from .functions import erf as erf
from .functions import erfc as erfc
from .functions import exp as exp
from .functions import expm1 as expm1
from .functions import floor as floor
from .functions import isfinite as isfinite
from .functions import log as log
from .functions import log1p as log1p
from .functions import maximum as maximum
from .functions import minimum as minimum
from .functions import not_equal as not_equal
from .functions import popcount as popcount
from .functions import power as power
from .functions import remainder as remainder
from .functions import rint as rint
from .functions import round as round
from .functions import rsqrt as rsqrt
from .functions import select as select
from .functions import sigmoid as sigmoid
from .functions import sign as sign
from .functions import sin as sin
from .functions import sinh as sinh
from .functions import sqrt as sqrt
from .functions import tan as tan
from .functions import tanh as tanh
from .lower import create_func as create_func
from .tensor import ReduceAxis as ReduceAxis
from .tensor import Tensor as Tensor
from .tensor import Value as Value
from .tensor import placeholder as placeholder
from .tensor import reduce_axis as reduce_axis
