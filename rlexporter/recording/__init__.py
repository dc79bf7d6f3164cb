"""A file with a recorded run -> events, in order. Reads what people have, and says clearly what it cannot read.

A file is a `trainer_state.json` of transformers, or JSON lines: a flat log line with its ``step`` each, or events as
`rlexporter.recording.writer` writes them (``log``, ``step``, ``part``, ``state``, ``meta``) and other recorders do
(``stats``, ``tracker_log``, ``crash``, ``train_end``, ``end``). Other events are passed over. Of ``meta`` only what
`rlexporter.recording.writer` writes there is read: the run, its trainer and configuration, the bounds of its
histograms. A state file (`rlexporter.outputs.state_file`) is no recorded run but its last moment: `read_saved_state`.
"""

from rlexporter.recording.jsonl import UnreadableError
from rlexporter.recording.reader import Event, Recording, read
from rlexporter.recording.saved_state import SavedState, read_saved_state

__all__ = ["Event", "Recording", "SavedState", "UnreadableError", "read", "read_saved_state"]
