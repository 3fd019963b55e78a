"""The texts of the house for its translators: found by `texts.py` and `registries.py`, kept by `catalogues.py`."""
