"""Finding what is wrong with a model's code: run again, locate the fault, shrink the model."""
