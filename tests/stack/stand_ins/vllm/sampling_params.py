"""What trl imports from here; only a constraint on what is sampled needs it."""

StructuredOutputsParams = None
