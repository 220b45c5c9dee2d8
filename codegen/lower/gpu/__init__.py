"""Lowering passes for GPUs: thread loops become launches, threads meet where they must."""
