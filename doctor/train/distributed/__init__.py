"""Several processes train one run together."""
