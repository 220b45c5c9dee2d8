"""What graph passes match and build."""
