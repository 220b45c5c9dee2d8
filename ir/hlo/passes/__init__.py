"""Graph passes: HLO module in, HLO module out."""
