"""Facts and passes that all sketches for CPUs build on: matching, contractions, sums, fallback."""
