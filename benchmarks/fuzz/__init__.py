"""Campaigns that look for wrong results: random programs, random schedules, mutated inputs."""
