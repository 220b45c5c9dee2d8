"""Elementary functions of f64."""
