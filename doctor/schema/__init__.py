"""The Schema of each trainer: mined from a checkout, or of the tables that ship; and as editors read it."""
