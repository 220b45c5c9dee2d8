"""The tasks of a model: what is tuned, how often it runs, how much work it is."""
