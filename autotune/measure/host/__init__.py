"""The machine that measures: its lock, cores, peaks, and how far its figures can be trusted."""
