"""ATen's operators that are layers of networks, or a part of one: a file for each family."""
