"""Analyses of a whole module: verifier, support, effects, inputs."""
