"""FuseOps: which instructions become one group, and why."""
