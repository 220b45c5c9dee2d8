"""The code of kernels: its forms, launches on a device, and compiled groups with their sizes."""
