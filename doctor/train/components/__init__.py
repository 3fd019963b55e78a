"""The components beside the transformer: text encoders, tokenizers and the VAE, found and loaded."""
