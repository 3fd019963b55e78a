"""What of a config the runner follows, what it refuses, and what it only says. Free of torch."""
