"""What sketches are made of: an analysis of the nest, lookups, spaces of decisions."""
