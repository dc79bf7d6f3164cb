"""Integrations with a user's training: attach(), callbacks, report_to, trackers, `rlexporter run`."""
