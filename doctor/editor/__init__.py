"""A config that is open in an editor: what is marked in it, what mends it, and what may be written."""
