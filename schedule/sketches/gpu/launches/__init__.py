"""The base of all sketches for a GPU: blocks that share a launch, inlining, threads, costs."""
