"""What is asked of a whole module: verifier, support, effects, inputs."""
