"""Forms of constant weights that kernels read: asked for, chosen, and reported."""
