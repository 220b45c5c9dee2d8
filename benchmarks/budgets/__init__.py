"""What the machine code of important kernels may have; counted by `sass.py` and a test."""
