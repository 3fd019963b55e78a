"""Images become latents and prompts embeddings, each once, kept in the cache of the output folder."""
