"""Doors by which models come in (torch.compile, ONNX files): their speed and conformance."""
