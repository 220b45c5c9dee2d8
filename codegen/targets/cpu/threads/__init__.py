"""The runtime of executables on their threads: the pool, and routines for batches."""
