"""Operators of ``com.microsoft`` that exporters and ONNX Runtime's optimizer write."""

from __future__ import annotations

from . import attention as attention
from . import elementwise as elementwise
from . import normalization as normalization
from . import quantized as quantized
