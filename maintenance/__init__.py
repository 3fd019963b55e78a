"""What maintainers run now and then; nothing here is installed."""
