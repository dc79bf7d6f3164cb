"""Which TRL is installed, and which tests run with it.

`make versions` has environments with trl 1.12 and 0.19, where PPO is modern, and 0.11 and 0.7, where it is legacy. Each
kind is tested in the newest one that has it; in the older ones of both, only what differs from version to version is.
"""

from __future__ import annotations

import pytest
import trl

VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
MODERN = VERSION >= (0, 12)
LAST_OF_PPO = VERSION in ((1, 12), (0, 11))

has_ppo = pytest.mark.skipif(VERSION > (1, 12), reason="PPO ended with trl 1.12")
modern = pytest.mark.skipif(not (0, 12) <= VERSION <= (1, 12), reason="trl 0.12 to 1.12 have modern PPO")
legacy = pytest.mark.skipif(MODERN, reason="legacy PPO ended with trl 0.11")
once = pytest.mark.skipif(not LAST_OF_PPO, reason="once for each kind of PPO: trl 1.12 and 0.11 have them")
once_modern = pytest.mark.skipif(VERSION != (1, 12), reason="once is enough: trl 1.12 has modern PPO")
once_legacy = pytest.mark.skipif(VERSION != (0, 11), reason="once is enough: trl 0.11 has legacy PPO")
