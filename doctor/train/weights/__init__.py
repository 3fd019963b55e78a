"""Tensors on their way from files into a model: read, merged with an adapter, quantized, cached."""
