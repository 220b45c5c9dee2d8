"""The tables on tuning of `benchmarks/tuning.py`: workloads, races, arithmetic."""
