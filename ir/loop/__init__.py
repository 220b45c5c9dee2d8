"""Loop IR: nests of loops and blocks over buffers."""
