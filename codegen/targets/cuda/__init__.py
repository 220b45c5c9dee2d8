"""NVIDIA GPUs: PTX and machine code."""
