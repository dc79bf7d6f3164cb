"""Frameworks other than TRL, and loggers, a file each: the keys of its lines and the series that they feed, where its
settings are, and how its logger is watched. Here are their names, once, from which all lists of them derive.

Nothing is imported here, and no file below: `import rlexporter` reads this, and the start-up code of `rlexporter run`
runs it in each Python.
"""

FRAMEWORKS = {
    "verl": ("verl.utils.tracking",),
    "openrlhf": ("openrlhf.utils.logging_utils",),
    "nemo_rl": ("nemo_rl.utils.logger",),
    "prime_rl": ("prime_rl.monitors", "prime_rl.utils.monitor"),
    "swift": (),
    "unsloth": (),
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
"""The same of the loggers, which are watched where they are asked for."""
FILES = {"miles": "slime"}
"""The file of a framework that is a copy of another."""

WATCHED = {name: modules for name, modules in (FRAMEWORKS | LOGGERS).items() if modules}
"""The loggers whose lines can feed a run, by their names in `RLEXPORTER_FROM`."""
