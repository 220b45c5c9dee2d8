"""A stand-in for the CUDA driver below cuda-python: the real bindings load it as libcuda.so.1.

``library`` builds it from the C files in ``driver/``, ``control`` speaks with it, ``simulated``
puts the simulator's kernels behind the launches of a model, and ``run`` starts a script over it::

    python benchmarks/gpu/stub/run.py SCRIPT [ARGUMENTS]

What it models, and what it cannot show, is in docs/decisions/cuda-stub.md.
"""
