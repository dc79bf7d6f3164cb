"""TRL's own tests without and with this exporter, for `make trl-suite`."""
