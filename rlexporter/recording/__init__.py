"""Reader and writer of recorded runs: a file <-> events, in order. Errors say clearly what cannot be read.

A file is the log of a trainer, in any format of `rlexporter.recording.formats`, or JSON lines with events as
`rlexporter.recording.writer` writes them (``log``, ``step``, ``part``, ``state``, ``meta``) and other recorders do
(``stats``, ``tracker_log``, ``crash``, ``train_end``, ``end``). Other events are ignored, and so is anything in
``meta`` that `rlexporter.recording.writer` does not write: it holds the run, its trainer and configuration, and the
bounds of its histograms. `rlexporter.recording.growing` reads the same while it grows.
"""

from rlexporter.recording.reader import Event, Recording, read, read_all
from rlexporter.recording.source import UnreadableError

__all__ = ["Event", "Recording", "UnreadableError", "read", "read_all"]
