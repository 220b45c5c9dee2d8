"""OpenVINO on an ONNX file: its CPU plugin in f32, with its defaults but the threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.arrays import Array
from .table import Given, Opened


def open_model(given: Given) -> Opened:
    """Return a compiled model; a call takes NumPy arrays by name and gives NumPy arrays.

    It has one request for inference, so threads cannot share it.
    """
    import openvino

    settings = {"INFERENCE_NUM_THREADS": given.threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(str(given.file), "CPU", settings)
    feeds = dict(given.arguments)

    def arrays(found: Any) -> list[Array]:
        return [np.asarray(value) for value in found.values()]

    version = openvino.get_version().partition("-")[0]
    return Opened(lambda: model(feeds), arrays, f"OpenVINO {version}, f32", shared=False)
