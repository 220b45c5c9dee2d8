"""The interface that ONNX defines for what runs models: ``onnx.backend.base.Backend``.

import nestwright.interop.onnx as backend
outputs = backend.prepare(model).run([x])
"""

from __future__ import annotations

from .backend import NestwrightBackend as NestwrightBackend
from .backend import PreparedModel as PreparedModel

is_compatible = NestwrightBackend.is_compatible
prepare = NestwrightBackend.prepare
run_model = NestwrightBackend.run_model
run_node = NestwrightBackend.run_node
supports_device = NestwrightBackend.supports_device
