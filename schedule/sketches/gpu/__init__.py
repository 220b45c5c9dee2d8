"""Sketches for GPUs: what the threads and blocks of a launch do, for every kind of group."""
