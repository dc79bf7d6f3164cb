"""Prints what Alertmanager tells, in place of a chat or a pager: `docker compose logs -f messages`."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

QUIET = "/heartbeat"


class Messages(BaseHTTPRequestHandler):
    """Takes what a webhook of alerts/alertmanager.yml is sent, and prints a few lines of it."""

    def do_POST(self) -> None:
        """Print the alerts of one message."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for alert in body["alerts"] if self.path != QUIET else ():
            told, labels = alert["annotations"], alert["labels"]
            print(f"{self.path.strip('/')}, {alert['status']}: {labels['alertname']} of {labels.get('run', 'no run')}")
            print(f"  {told.get('summary', '')}\n  {told.get('description', '')}\n", flush=True)

    def do_GET(self) -> None:
        """Answer the health check."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Leave out the line that there would be for each request."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int([*sys.argv, "9099"][1])), Messages).serve_forever()
