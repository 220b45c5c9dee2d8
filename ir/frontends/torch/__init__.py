"""PyTorch: modules, exported programs and FX graphs of ATen operators, read as HLO."""
