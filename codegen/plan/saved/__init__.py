"""The file of a built model: its members, how it is written and read, and who signed it."""
