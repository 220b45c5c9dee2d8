"""The name of the domain of ONNX Runtime's own operators."""

from __future__ import annotations

DOMAIN = "com.microsoft"
