"""Report -> text. Every format tells the same exit code; none of them judges."""
