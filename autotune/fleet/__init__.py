"""Measuring on many machines: jobs that travel, workers that do them, crews, and the fleet."""
