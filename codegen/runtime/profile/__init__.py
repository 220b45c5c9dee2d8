"""Profiles: the time of every step of a call, what it computes, and where."""
