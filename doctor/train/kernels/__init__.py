"""The arithmetic of Linears and attention: quantized weights, products in float16, attention for CPUs."""
