"""Elementary functions of f32 and narrower floats."""
