"""The arithmetic of Linears and attention: quantized weights, matmuls in float16, attention for CPUs."""
