"""NVIDIA GPUs: a first run on one, times, counts in built code, and a stub of the driver.

On a machine with a GPU ``ladder`` comes first, then ``measure``; ``kit`` packs what both bring
along, and ``stub`` stands in for the driver elsewhere. ``budgets`` and ``launches`` run nothing.
"""
