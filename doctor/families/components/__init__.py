"""Components that several families share: text encoders and autoencoders."""
