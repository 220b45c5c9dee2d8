"""The cost model of the tuner: features of schedules, and what learns from them."""
