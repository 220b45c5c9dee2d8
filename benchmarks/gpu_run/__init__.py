"""The parts of `gpu.py`: workloads, contenders, clocks, predictions, the table; and the kit."""
