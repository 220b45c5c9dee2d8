"""The interpreter of HLO, the oracle of every check."""
