"""What every writer needs of the file system: renaming that waits, names forced to disk."""
