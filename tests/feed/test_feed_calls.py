"""How far a log line goes through our code: a person who reads it goes the same way."""

from __future__ import annotations

from benchmarks import calls


def test_a_line_takes_few_calls_in_few_files() -> None:
    """Nine functions at most run before its first key is read."""
    found = calls.of_a_line()

    assert len(found.before(calls.READS)) <= 9
    assert len(found.calls) <= 150
    assert len(found.files) <= 12
