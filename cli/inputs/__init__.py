"""Inputs of a model: arrays from files, the sizes that they settle, and each rank's own parts."""
