"""What trl imports from here; only its server needs it."""

get_ip = None
