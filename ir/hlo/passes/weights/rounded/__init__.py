"""Products of operands that are rounded, or widened, to what the processor multiplies fast."""
