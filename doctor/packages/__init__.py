"""What is asked of a Python environment, and whether what is installed answers it. Pure."""
