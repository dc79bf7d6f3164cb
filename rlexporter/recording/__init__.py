"""A file with a recorded run -> events, in order. Reads what people have, and says clearly what it cannot read.

A file is a `trainer_state.json` of transformers, or JSON lines: a flat log line with its ``step`` each, or events as
`rlexporter.record` writes them (``log``, ``step``, ``part``, ``state``, ``meta``) and other recorders do (``stats``,
``tracker_log``, ``crash``, ``train_end``, ``end``). Other events are passed over. Of ``meta`` only what
`rlexporter.record` writes there is read: the run, its trainer and configuration, the bounds of its histograms.
A state file (`rlexporter.outputs.state`) is no recorded run but its last moment: `read_kept`.
"""

from rlexporter.recording.kept import Kept, read_kept
from rlexporter.recording.lines import UnreadableError
from rlexporter.recording.reading import Event, Recording, read

__all__ = ["Event", "Kept", "Recording", "UnreadableError", "read", "read_kept"]
