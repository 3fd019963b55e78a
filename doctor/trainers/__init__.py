"""One room a trainer: how its config is read, what it trains, its schema, and its failures in a log. Pure."""
