"""Launches of whole models that are built for GPUs: counts of them, and the command."""
