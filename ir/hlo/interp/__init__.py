"""The HLO interpreter, the oracle of every check."""
