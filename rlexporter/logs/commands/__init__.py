"""The commands over logs and recorded runs, one a file."""
