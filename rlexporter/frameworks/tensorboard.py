"""TensorBoard: `SummaryWriter.add_scalar`, `add_scalars` and `add_histogram`, of torch and of tensorboardX. All public.

The writers of one process write one run: tags of all of them are one set of keys. If two writers, each with a folder of
its own, use the same tag, the first one keeps it, and that of the other gets the name of its folder before it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from rlexporter.frameworks.common import Feed, Line, after_call
from rlexporter.model.step import RunFacts

_MOST_TAGS = 10_000


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what every writer logs. ``module``: `torch.utils.tensorboard.writer` or `tensorboardX.writer`."""
    folders: dict[str, str] = {}
    """The folder of the writer that used a tag first, by tag."""

    def scalar(writer: Any, tag: str, value: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
        log(writer, {tag: value}, global_step)

    def scalars(writer: Any, main_tag: str, tag_scalar_dict: Line, global_step: Any = None, *_: Any, **__: Any) -> None:
        log(writer, {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, global_step)

    def close(writer: Any) -> None:
        feed.flush()

    def log(writer: Any, values: Line, step: Any) -> None:
        folder = str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", ""))  # torch's, tensorboardX's
        line = {_key(folders, tag, folder): value for tag, value in values.items()}
        feed.log(lambda: RunFacts(open_ended=True), line, None if step is None else int(step), whole=False)

    after_call(module.SummaryWriter, "add_scalar", scalar)
    after_call(module.SummaryWriter, "add_scalars", scalars)
    after_call(module.SummaryWriter, "add_histogram", scalar)
    after_call(module.SummaryWriter, "close", close)


def _key(folders: dict[str, str], tag: str, folder: str) -> str:
    first = folders.get(tag)
    if first is None and len(folders) < _MOST_TAGS:
        folders[tag] = folder
    if first is None or first == folder:
        return tag
    return f"{folder.rstrip('/').rpartition('/')[2]}/{tag}"
