"""The way of weights from a trainer to the server: by a file, where vLLM uses NCCL between GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch


class NCCLTrainerSendWeightsArgs:
    """How to send."""

    def __init__(self, **_: Any) -> None:
        pass


class NCCLWeightTransferEngine:
    """The trainer's side."""

    @staticmethod
    def trainer_send_weights(iterator: Iterator[tuple[str, torch.Tensor]], trainer_args: Any) -> None:
        """Write the weights to the file that STAND_IN_WEIGHTS names, in one piece."""
        path = Path(os.environ["STAND_IN_WEIGHTS"])
        partial = path.with_suffix(".part")
        torch.save({name: weight.clone() for name, weight in iterator}, partial)
        partial.replace(path)
