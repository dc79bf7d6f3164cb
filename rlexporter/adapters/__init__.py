"""One file a framework generation: the only ones that know transformers and trl. They feed a `Feed`, and catch."""
