"""Measuring on many machines: jobs that travel, workers that do them, pools, and the fleet."""
