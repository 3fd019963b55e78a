"""The frozen base model: its files, its formats, where its weights lie and how its blocks run."""
