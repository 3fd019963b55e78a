"""ai-toolkit."""
