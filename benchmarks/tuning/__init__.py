"""Tables on tuning: workloads, races, arithmetic, and the command that prints them."""
