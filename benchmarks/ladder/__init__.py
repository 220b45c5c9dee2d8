"""The rungs of `gpu_ladder.py`, a mechanism of runtime or kernels each, and the climb."""
