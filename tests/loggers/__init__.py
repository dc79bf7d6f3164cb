"""Loggers of others: real packages, real scripts that know nothing of us, and what the packages wrote themselves."""
