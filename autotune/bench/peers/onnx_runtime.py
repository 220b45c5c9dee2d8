"""ONNX Runtime on an ONNX file: its CPU provider, with its defaults but the threads."""

from __future__ import annotations

from .table import Given, Opened, listed


def open_session(given: Given) -> Opened:
    """Return a session; a call takes NumPy arrays by name and gives NumPy arrays."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    session = onnxruntime.InferenceSession(str(given.file), options, ["CPUExecutionProvider"])
    feeds = dict(given.arguments)
    return Opened(
        lambda: session.run(None, feeds), listed, f"ONNX Runtime {onnxruntime.__version__}"
    )
