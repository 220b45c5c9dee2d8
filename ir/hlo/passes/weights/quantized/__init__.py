"""Products of quantized graphs: dequantized operands are multiplied as their codes."""
