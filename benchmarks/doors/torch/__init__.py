"""torch: models of usual libraries, and its own operators held against eager mode."""
