"""The loggers whose lines can feed a run, one a file. Each is handed the module of its package, and imports nothing."""
