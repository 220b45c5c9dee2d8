"""Steps of a random program, one function each; importing a file registers its steps."""
