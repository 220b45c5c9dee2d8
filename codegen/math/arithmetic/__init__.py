"""Building blocks of the functions: values with operators, double words, argument reduction."""
