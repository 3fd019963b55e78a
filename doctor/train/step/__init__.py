"""One training step: timesteps, loss, optimizer, learning rate, and the validation loss."""
