"""What is known of the model families: how they load, which tensors their components are made of. Pure."""
