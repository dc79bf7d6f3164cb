"""Frameworks other than TRL: the keys of their lines and the series that they feed, where their settings are, and how
their loggers are watched. Here are their names, once, from which all lists of them derive.

This file imports nothing: `import rlexporter` reads it, and the start-up code of `rlexporter run` runs it in each
Python.
"""

_LOGGED = ("skyrl", "tinker_cookbook", "open_instruct", "areal", "trlx", "deepspeed_chat")
"""The frameworks that are read through the loggers alone, as ROLL is."""

FRAMEWORKS = {
    "roll": (),  # before verl, whose keys it logs too
    "verl": ("verl.utils.tracking",),
    "openrlhf": ("openrlhf.utils.logging_utils",),
    "nemo_rl": ("nemo_rl.utils.logger",),
    "prime_rl": ("prime_rl.monitors", "prime_rl.utils.monitor"),
    "swift": (),
    "unsloth": (),
    **dict.fromkeys(_LOGGED, ()),
    "slime": ("slime.observability.logging_utils", "slime.utils.logging_utils"),
    "miles": ("miles.utils.tracking_utils.tracking",),
}
"""The modules that the `watch` of each file is handed; none where trainers are watched. They call the loggers below."""
LOGGERS = {
    "accelerate": ("accelerate.accelerator",),
    "wandb": ("wandb.sdk.wandb_run", "wandb.sdk.data_types.histogram"),
    "mlflow": ("mlflow.tracking.client",),
    "trackio": ("trackio.run", "trackio.histogram"),
    "tensorboard": ("torch.utils.tensorboard.writer", "tensorboardX.writer"),
}
"""The same for loggers, which are watched on request."""
FILES = (
    {"miles": "slime", "swift": "trl_based", "unsloth": "trl_based"}
    | dict.fromkeys(_LOGGED, "logged")
    | dict.fromkeys(LOGGERS, "loggers")
)
"""The files of those that have none of their own."""

WATCHED = {name: modules for name, modules in (FRAMEWORKS | LOGGERS).items() if modules}
"""The loggers whose lines can feed a run, by their names in `RLEXPORTER_FROM`."""
