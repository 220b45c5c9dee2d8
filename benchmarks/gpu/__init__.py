"""Benchmarks of NVIDIA GPUs, for machines with one and without: the first run, times, code."""
