"""Reader and writer of recorded runs: a file <-> events, in order. Errors say clearly what cannot be read.

A file is a `trainer_state.json` of transformers, or JSON lines: a flat log line with its ``step`` each, or events as
`rlexporter.recording.writer` writes them (``log``, ``step``, ``part``, ``state``, ``meta``) and other recorders do
(``stats``, ``tracker_log``, ``crash``, ``train_end``, ``end``). Other events are ignored, and so is anything in
``meta`` that `rlexporter.recording.writer` does not write: it holds the run, its trainer and configuration, and the
bounds of its histograms. `read_saved_state` reads a state file (`rlexporter.outputs.state_file`), a run's last moment.
"""

from rlexporter.recording.jsonl import UnreadableError
from rlexporter.recording.reader import Event, Recording, read
from rlexporter.recording.saved_state import SavedState, read_saved_state

__all__ = ["Event", "Recording", "SavedState", "UnreadableError", "read", "read_saved_state"]
