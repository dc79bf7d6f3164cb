"""What each setting is for, in the order of docs/settings.md, which `scripts/reference.py` makes of it."""

from __future__ import annotations

from rlexporter.config.settings import LOGGERS

DESCRIPTIONS = {
    "run": (
        "Name of the run. By default the trainer's run name, else the name of its output folder and a short "
        "id that all ranks share and that a resumed run keeps."
    ),
    "algorithm": "`grpo`, `rloo`, `ppo`, `ppo-legacy`, or a name of your own.",
    "host": "Address to listen on. `0.0.0.0` opens the endpoint to the network: then set a token.",
    "port": "0 takes a free one. Other ranks that serve: this and their local rank.",
    "ranks": "Which ranks serve: `main`, `all` or `timings` ([scale.md](scale.md#every-rank)).",
    "token_file": "A file with the token that every request has to bring ([security.md](security.md)).",
    "tls_cert_file": "TLS: the certificate and its chain, PEM. Needs the key.",
    "tls_key_file": "TLS: the key of that certificate, PEM, without a passphrase.",
    "tls_client_ca_file": "TLS: only clients with a certificate that these have signed, PEM.",
    "otlp": (
        "Push by OTLP: `on`, to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, or an address. Every 15 seconds, or "
        "the milliseconds in `OTEL_METRIC_EXPORT_INTERVAL`. Needs `pip install 'rlexporter[otlp]'`."
    ),
    "discovery_dir": "Folder for a target file of Prometheus.",
    "advertise": "The address in that target file, where the found one is wrong, and a name that loopback answers to.",
    "notify": (
        "Where messages go: addresses of [apprise](https://github.com/caronc/apprise), such as `discord://ID/TOKEN`, "
        "with blanks or commas between ([notify.md](howto/notify.md)). Needs `pip install 'rlexporter[notify]'`."
    ),
    "notify_warnings": "Send a message of a warning too, not only of what is critical.",
    "on_critical": (
        "What to do when something critical begins: `save` a checkpoint, `stop` the training, or both with a comma; "
        "or a function that gets the incident and returns one of these, or None. Default: nothing "
        "([on-critical.md](howto/on-critical.md))."
    ),
    "on_critical_for": "The conditions that this is for, with commas between them; by default all that are critical.",
    "on_critical_patience": "For how many steps such a condition has to hold before.",
    "keep_good": (
        "Keep copies of the last good checkpoints, `good-checkpoint-STEP`, which `save_total_limit` does not delete: "
        "`on` or `off`."
    ),
    "report": "Keep the page of a run that is over beside its checkpoints, as `rlexporter.html`: `on` or `off`.",
    "completions": (
        "How many of the best, the worst and the last completions of a rollout the page shows, with their prompts and "
        "rewards, 0 to 50. They stay in the process: no series, recording or kept page has them "
        "([security.md](security.md)). GRPO, RLOO and legacy PPO."
    ),
    "compare": (
        "The run that the page draws in gray beside this one: `on`, the one before in the same output folder, by its "
        "page; `off`; or the page of another, as `rlexporter report` makes it."
    ),
    "state_file": "Keep the last state in a file: `on`, beside the checkpoints, or a path.",
    "state_interval": "How many seconds old that file is at most while the run lasts, 1 to 3600.",
    "linger": (
        "How many seconds the final state is served at most, until all scrapers have fetched it: one that is away when "
        "the run ends has so long to come back. 0 waits for nobody."
    ),
    "labels": "A few labels for every series: `team=llm,project=math`, or a mapping.",
    "thresholds": (
        "Limits of alerts: `kl_high=0.5,entropy_low=off`, a mapping, or a TOML file "
        "([alerts.md](alerts.md#limits-of-your-own))."
    ),
    "buckets": (
        "Bounds of histograms, where yours are on another scale than the catalog's: "
        "`reward=0,0.25,0.5,0.75,1;completion_length=64,256,1024`, or a mapping ([scale.md](scale.md#buckets))."
    ),
    "map": (
        "What keys mean that the catalog does not know: `train/score=reward,train/len=length`, a mapping, or a TOML "
        "file ([alerts.md](alerts.md#keys-of-your-own))."
    ),
    "record": "A file to which log lines and all that was seen in each step are appended, as JSON lines.",
    "max_keys": "How many keys that the catalog does not know are served.",
    "rank": "Rank of this process. Set by `torchrun` and `accelerate launch`.",
    "local_rank": "Its rank on this machine. Set by them too.",
    "world_size": "Number of ranks. Set by them too.",
}
"""By argument; Markdown, with links as in docs/."""
LOGGERS_TEXT = (
    f"Which loggers' lines feed a run, the preferred first: {', '.join(f'`{each}`' for each in LOGGERS)} "
    "([frameworks.md](frameworks.md)). Set by `rlexporter run --from`, or before `import rlexporter`; it is no "
    "argument."
)
FOUND = ("run", "algorithm", "advertise")
"""Settings whose default is found out, rather than none."""
