"""Run-time tests that kernels are correct, and what is called if they are not."""
