"""StableHLO text (MLIR, with the CHLO, MHLO and func dialects) as HLO modules."""
