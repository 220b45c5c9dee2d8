"""The HTML page of a benchmark report."""
