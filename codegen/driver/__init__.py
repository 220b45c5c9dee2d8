"""Builds: from a module to a bundle, stages, parallel compilation, the cache on disk."""
