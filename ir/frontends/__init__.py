"""Ways into HLO: a folder for each front-end, which makes an ``HloModule`` and nothing else."""
