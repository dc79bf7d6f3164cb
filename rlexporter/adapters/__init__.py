"""Adapters, one file per framework generation: the only code that knows transformers and trl. They feed a `Sink`."""
