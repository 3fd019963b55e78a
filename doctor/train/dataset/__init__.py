"""The dataset: images, captions, buckets, and the batches made of them."""
