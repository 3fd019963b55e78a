"""What is looked at: the world in, `Facts` out."""
