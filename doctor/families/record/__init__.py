"""What a family's record is made of, and what its tables are written with."""
