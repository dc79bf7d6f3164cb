"""The command line. Here are its commands by name, in the order of a first day: the module of each, and what it is for.

This file imports nothing. `rlexporter.commands.main` imports the module of the command that is run, and no other.
"""

COMMANDS = {
    "demo": ("rlexporter.demo", "train a tiny model with TRL on the CPU, and serve the run"),
    "run": ("rlexporter.commands.run", "run a training script or a launcher, and serve whatever it trains"),
    "status": ("rlexporter.commands.status", "say how a run is doing: fine, look or act"),
    "top": ("rlexporter.commands.top", "show several runs in a terminal, the worst first"),
    "notify": ("rlexporter.commands.notify", "send a message to try RLEXPORTER_NOTIFY"),
    "metrics": ("rlexporter.commands.metrics", "list what is served"),
    "check": ("rlexporter.logs.commands.check", "say which alerts a recorded run would have raised"),
    "report": ("rlexporter.logs.commands.report", "write the page of a recorded run as one HTML file"),
    "replay": ("rlexporter.logs.commands.replay", "serve a recorded run as if live, or write it for promtool"),
    "tail": (
        "rlexporter.logs.commands.tail",
        "follow the log of a run that you cannot modify, and serve it live",
    ),
    "generate": (
        "rlexporter.commands.generate",
        "write rules, Alertmanager's configuration and dashboards for your site",
    ),
    "discovery": (
        "rlexporter.commands.discovery",
        "remove the Prometheus target files that killed processes left behind",
    ),
}
"""Each module has a function `define`, which is handed the parser of its command."""
