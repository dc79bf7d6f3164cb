"""What a trainer descends from: its framework, and the classes of TRL that it is, or is a rewritten copy of.

ms-swift (4.6.0) derives its trainers from TRL's, under the same names, in modules of its own. Unsloth (2026.10.9)
writes a copy of each trainer of TRL, `_UnslothGRPOTrainer`, that is no `GRPOTrainer`, and a thin
`UnslothGRPOTrainer` over it.
"""

from __future__ import annotations

import re
from typing import Any

from rlexporter import catalog

_COPY = re.compile("_?Unsloth(?=[A-Z])")
_SWIFT = "swift."


def framework_of(trainer: Any) -> str:
    """Return the name of the framework that ``trainer`` is of: that which its class is declared in."""
    kinds = type(trainer).__mro__
    if any(kind.__module__.startswith(_SWIFT) for kind in kinds):
        return catalog.SWIFT.name
    return catalog.UNSLOTH.name if any(_COPY.match(kind.__name__) for kind in kinds) else catalog.TRL


def names_of(kind: type) -> list[str]:
    """Return the names of ``kind`` and its bases; for a copy that of the class of TRL."""
    return [_COPY.sub("", each.__name__) for each in kind.__mro__]
