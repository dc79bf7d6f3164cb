"""Writes the golden scrapes anew; read the difference before you commit it."""

from pathlib import Path

from rlexporter.outputs.prometheus import encode
from tests.outputs.test_prometheus import OPENMETRICS, TEXT, golden_store

FOLDER = Path(__file__).parent.parent / "tests/data/golden"

for accept, name in ((TEXT, "scrape.txt"), (OPENMETRICS, "scrape.om.txt")):
    (FOLDER / name).write_bytes(encode(golden_store().snapshot, accept)[0])
