"""Forward error analysis of HLO: the value of each element, and how far a result may be off."""
