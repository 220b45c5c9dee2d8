"""ONNX: models as exporters write them, and the conformance of operators and models."""
