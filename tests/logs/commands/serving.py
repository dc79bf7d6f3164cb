"""Commands that serve a run, as processes, and what they serve."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from tests import tools
from tests.conftest import fetch


@contextlib.contextmanager
def process(command: str, *arguments: object, stdin: int | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`rlexporter COMMAND` on a free port, and where it serves; killed at the end."""
    words = [sys.executable, "-u", "-m", "rlexporter", command, "--port", "0", *map(str, arguments)]
    with subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        try:
            assert started.stdout
            found = re.search(r" on (http\S+)/ \(", tools.said_until(" (Prometheus scrapes", started.stdout))
            assert found
            yield started, found[1]
        finally:
            started.kill()


def scrape(url: str) -> dict[str, float]:
    """Each sample, by name and labels but those of the run."""
    status, text, _ = fetch(f"{url}/metrics")
    assert status == 200
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k not in ("run", "rank"))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
