"""``torch.compile(model, backend="nestwright")``: the backend, and what it says of a model."""
