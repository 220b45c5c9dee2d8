"""Functions that write graphs, for all front-ends, named as in ``jax.lax`` and ``jax.numpy``."""
