"""Command line, with one file per command; the smallest are in main.py."""
