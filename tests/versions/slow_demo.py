"""`rlexporter demo` whose reward function takes as long as one that asks a model, so that no machine is too fast.

A condition of one step is in force for twenty, which a fast machine makes in half a second; the page is a second old.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from rlexporter.commands.main import main
from rlexporter.demo import tiny

_SECONDS = 0.25
"""The time of a call. GRPO makes one for two steps."""


_plain = tiny.letter_reward


@functools.wraps(_plain)
def _slow(prompts: list[str], completions: list[str], **rest: Any) -> list[float]:
    time.sleep(_SECONDS)
    return _plain(prompts, completions, **rest)


if __name__ == "__main__":
    tiny.letter_reward = _slow
    raise SystemExit(main())
