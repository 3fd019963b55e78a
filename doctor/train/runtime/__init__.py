"""What every layer leans on: errors, signals, memory, precision, and files written whole or not at all."""
