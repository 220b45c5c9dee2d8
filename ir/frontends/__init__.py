"""Ways into HLO other than its text: each front-end makes an ``HloModule`` and nothing else."""
