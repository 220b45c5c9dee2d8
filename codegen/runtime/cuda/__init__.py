"""What runs on an NVIDIA GPU, through its driver: memory, kernels, graphs, arrays."""
