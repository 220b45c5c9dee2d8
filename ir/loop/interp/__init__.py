"""The loop IR interpreter, the oracle of schedules: nests by element, by lane, by GPU thread."""
