"""What each trainer's own code makes of the same pictures and captions, one module a trainer."""
