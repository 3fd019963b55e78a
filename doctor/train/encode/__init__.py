"""Pictures to latents and prompts to embeddings, each once."""
