"""Attention on GPUs: on ordinary cores, on tensor cores, and split over keys."""
