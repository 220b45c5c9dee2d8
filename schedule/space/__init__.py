"""Building blocks of sketches: analysis of blocks, lookups in a schedule, decision spaces."""
