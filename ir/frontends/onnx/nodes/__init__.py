"""A model's protobufs as data, the table of operators, and the walk over a graph of nodes."""
