"""From scheduled loops to machine code, and the runtime that calls it."""
