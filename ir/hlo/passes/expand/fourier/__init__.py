"""Fourier transforms as products, or as transforms whose lanes are rows."""
