"""Keras 3: models on any backend, and ``.keras`` files of them."""
