"""What every layer leans on: errors, progress, signals, memory, precision, and files written whole or not at all."""
