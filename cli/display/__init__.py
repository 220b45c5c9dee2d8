"""The output of commands: reports as tables, tuning under way, and built models line by line."""
