"""What is learnt from: pictures, captions, masks, and in which order."""
