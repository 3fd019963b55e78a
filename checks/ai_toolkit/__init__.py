"""What only ai-toolkit's runs trip over."""
