"""Calibration: the rates of this machine, measured once and kept for the tuner's estimates."""
