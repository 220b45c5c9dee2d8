"""The runtime on NVIDIA GPUs, on the driver API: memory, kernels, graphs, arrays."""
