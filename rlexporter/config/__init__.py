"""Declares the settings, reads them, and reports errors in them."""
