"""What the machine code of important kernels may have; counted by `main.py` and a test."""
