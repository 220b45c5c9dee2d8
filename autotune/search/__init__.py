"""Search strategies over sketch decisions."""
