"""The nouns of the project: frozen values, from the standard library alone."""
