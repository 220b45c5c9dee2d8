"""Objects of JAX: recognized by their methods, lowered by JAX, read as HLO protos or StableHLO."""
