"""TensorBoard: `SummaryWriter.add_scalar`, `add_scalars` and `add_histogram`, of torch and of tensorboardX. All public.

The writers of one process write one run: tags of all of them are one set of keys. If two writers, each with a folder of
its own, use the same tag, the first one keeps it, and that of the other gets the name of its folder before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.model.step import RunFacts

NAME = "tensorboard"
_MOST_TAGS = 10_000


def watch_writers(module: ModuleType, sources: Sources) -> None:
    """Read what every writer logs. ``module``: `torch.utils.tensorboard.writer` or `tensorboardX.writer`."""
    lines = _Lines(sources)
    watch(module.SummaryWriter, "add_scalar", lines.scalar)
    watch(module.SummaryWriter, "add_scalars", lines.scalars)
    watch(module.SummaryWriter, "add_histogram", lines.scalar)
    watch(module.SummaryWriter, "close", lines.close)


class _Lines:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._folders: dict[str, str] = {}
        """The folder of the writer that used a tag first, by tag."""

    def scalar(self, writer: Any, tag: str, value: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
        """Take one number, or the values of a histogram."""
        self._log(writer, {tag: value}, global_step)

    def scalars(
        self,
        writer: Any,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        self._log(writer, {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, global_step)

    def close(self, writer: Any) -> None:
        """Serve what waits."""
        self._sources.flush(NAME)

    def _log(self, writer: Any, values: Mapping[str, Any], step: Any) -> None:
        folder = str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", ""))  # torch's, tensorboardX's
        line = {self._key(tag, folder): value for tag, value in values.items()}
        at = None if step is None else int(step)
        self._sources.log(NAME, lambda: RunFacts(open_ended=True), line, at, whole=False)

    def _key(self, tag: str, folder: str) -> str:
        first = self._folders.get(tag)
        if first is None and len(self._folders) < _MOST_TAGS:
            self._folders[tag] = folder
        if first is None or first == folder:
            return tag
        return f"{folder.rstrip('/').rpartition('/')[2]}/{tag}"
