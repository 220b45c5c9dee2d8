"""A model as a C library: instances of it, their pools and weights, the check of the machine."""
