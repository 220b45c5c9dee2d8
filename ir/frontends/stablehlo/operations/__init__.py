"""Operations of StableHLO, CHLO and MHLO: a file for each family, and the table of all."""
