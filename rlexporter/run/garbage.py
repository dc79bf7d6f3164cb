"""Python's garbage collector, which looks at all objects in each full collection, unless they are frozen."""

from __future__ import annotations

import gc


class Frozen:
    """Leaves all objects of the process out of collections, from `freeze` to `thaw`; not if somebody did so before."""

    def __init__(self) -> None:
        self._ours = False

    def freeze(self) -> None:
        """Collect once more, then leave out what exists now."""
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
            self._ours = True

    def thaw(self) -> None:
        """Look at everything again."""
        if self._ours:
            self._ours = False
            gc.unfreeze()
