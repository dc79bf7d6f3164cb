"""Reads what others wrote: the logs of trainers and recorded runs, and the commands over them.

A file is the log of a trainer, in any format of `rlexporter.logs.formats`, or JSON lines with events as
`rlexporter.recording.writer` writes them (``log``, ``step``, ``part``, ``state``, ``meta``) and other recorders do
(``stats``, ``tracker_log``, ``crash``, ``train_end``, ``end``). Other events are ignored, and so is anything in
``meta`` that `rlexporter.recording.writer` does not write: it holds the run, its trainer and configuration, and the
bounds of its histograms. `rlexporter.logs.reader` reads a file as a whole, `rlexporter.logs.growing` while it grows.

Nothing outside imports this room; the list of commands names its commands.
"""
