"""A snapshot and its history as what a person reads: a verdict, four answers, curves, and all the numbers."""
