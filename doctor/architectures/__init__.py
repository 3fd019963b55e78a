"""Pure tables: the tensors each architecture is made of, without torch."""
