"""The pass ``split_complex``: complex arrays become pairs of real ones."""
