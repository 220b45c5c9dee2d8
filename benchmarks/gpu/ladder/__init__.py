"""The first thing to run on a GPU: rungs, a mechanism of runtime or kernels each; the climb."""
