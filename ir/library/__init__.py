"""Host functions that a model calls: transforms, factorizations, custom calls."""
