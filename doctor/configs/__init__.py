"""The trainers' dialects: a config file in, `Run`s out; edits by source span."""
