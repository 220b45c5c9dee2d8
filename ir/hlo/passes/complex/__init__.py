"""Complex arrays as pairs of real ones."""
