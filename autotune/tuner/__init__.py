"""The tuning loop: a run of the tuner, its tasks, its budget and its races."""
