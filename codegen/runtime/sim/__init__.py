"""The runtime of simulated GPU code: one run at a time, and its findings."""
