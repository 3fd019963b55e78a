"""One module a command: its words, what it does, what it prints; and what several commands share."""
