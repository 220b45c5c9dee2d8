"""What functions of the host compute for a model: transforms, factorizations, custom calls."""
