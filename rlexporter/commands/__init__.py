"""Command line, with one file per command."""
