"""ONNX models: from ``.onnx`` files and ``onnx.ModelProto`` objects to HLO."""
