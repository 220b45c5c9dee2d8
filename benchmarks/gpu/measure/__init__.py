"""Target cuda on a machine with a GPU: workloads, contenders, clocks, predictions, the table."""
