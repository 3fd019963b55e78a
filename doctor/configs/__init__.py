"""Text formats: a file's bytes to a tree of values with their places, and edits by source span. Pure."""
