"""Frameworks other than TRL: the keys of their lines and the series that they feed, where their settings are, and how
their loggers are watched. Here are their names, once, from which all lists of them derive.

This file imports nothing: `import rlexporter` reads it, and the start-up code of `rlexporter run` runs it in each
Python.
"""

FRAMEWORKS = {
    "roll": ("rlexporter.logs.frameworks",),  # before verl, whose keys it logs too
    "verl-v1": ("rlexporter.frameworks.verl",),
    "verl": ("rlexporter.frameworks.verl", "verl.utils.tracking"),
    "openrlhf": ("rlexporter.frameworks.openrlhf", "openrlhf.utils.logging_utils"),
    "nemo-rl": ("rlexporter.frameworks.nemo_rl", "nemo_rl.utils.logger"),
    "prime-rl": ("rlexporter.frameworks.prime_rl", "prime_rl.monitors", "prime_rl.utils.monitor"),
    "ms-swift": ("rlexporter.frameworks.trl_based",),
    "unsloth": ("rlexporter.frameworks.trl_based",),
    "skyrl": ("rlexporter.logs.frameworks",),
    "tinker-cookbook": ("rlexporter.logs.frameworks",),
    "open-instruct": ("rlexporter.logs.frameworks",),
    "areal": ("rlexporter.logs.frameworks",),
    "trlx": ("rlexporter.logs.frameworks",),
    "deepspeed-chat": ("rlexporter.logs.frameworks",),
    "miles": ("rlexporter.frameworks.slime", "miles.utils.tracking_utils.tracking"),
    "slime": ("rlexporter.frameworks.slime", "slime.observability.logging_utils", "slime.utils.logging_utils"),
}
"""By the label ``framework`` of their runs: the module that has their table in its `TABLES`, and the modules that its
`watch` is handed; none where trainers are watched, or the loggers below alone. Of two frameworks with the same keys the
one with the more specific marks comes first.
"""
LOGGERS = {
    "accelerate": ("rlexporter.frameworks.loggers", "accelerate.accelerator"),
    "wandb": ("rlexporter.frameworks.loggers", "wandb.sdk.wandb_run", "wandb.sdk.data_types.histogram"),
    "mlflow": ("rlexporter.frameworks.loggers", "mlflow.tracking.client"),
    "trackio": ("rlexporter.frameworks.loggers", "trackio.run", "trackio.histogram"),
    "tensorboard": ("rlexporter.frameworks.loggers", "torch.utils.tensorboard.writer", "tensorboardX.writer"),
}
"""The same for loggers, which are watched on request, and have no table."""

WATCHED = {name.replace("-", "_"): found for name, found in (FRAMEWORKS | LOGGERS).items() if found[1:]}
"""The loggers whose lines can feed a run, by their names in `RLEXPORTER_FROM`: the same."""
