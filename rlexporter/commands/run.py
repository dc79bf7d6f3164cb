"""`rlexporter run COMMAND`: starts a command whose trainers or loggers are watched, without a change to its code.

The environment makes every Python that the command starts load `integrations/startup/sitecustomize.py`. The command
then replaces this process: process id, terminal, signals and exit status are its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rlexporter.config.settings import FROM, LOGGERS, Settings
from rlexporter.model.errors import SetupError

STARTUP = str(Path(__file__).parents[1] / "integrations" / "startup")
_VARIABLES = {
    "run": "RLEXPORTER_RUN",
    "host": "RLEXPORTER_LISTEN_HOST",
    "port": "RLEXPORTER_LISTEN_PORT",
    "sources": FROM,
}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.usage = "rlexporter run [-h] [--run NAME] [--host H] [--port P] [--from LOGGER,...] COMMAND [ARGS...]"
    parser.description = (
        "COMMAND is a Python script, `-m MODULE`, `-c CODE`, or any program: torchrun, accelerate, trl. "
        "Every other setting is an environment variable RLEXPORTER_*."
    )
    parser.allow_abbrev = False
    parser.add_argument("--run", metavar="NAME", help="name of the run (default: from the trainer)")
    parser.add_argument("--host", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="LOGGER,...",
        help=f"serve what is logged to one of these, the preferred first: {', '.join(LOGGERS)}",
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("-c", dest="code", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Become the command. Raises SetupError for an unusable setting or a command that cannot be started."""
    words = _command(options)
    given = {name: getattr(options, name) for name in _VARIABLES if getattr(options, name) is not None}
    environ = {**os.environ, **{_VARIABLES[name]: value for name, value in given.items()}}
    path = [folder for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder != STARTUP]
    environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *path])  # an empty part would mean the current folder
    Settings.load({name: value for name, value in given.items() if name != "sources"}, environ)
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores those that exist, and the command would inherit that
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, environ)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise SetupError(f"cannot start {words[0]}: {error.strerror}") from error


def _command(options: argparse.Namespace) -> list[str]:
    """Return the words to start: a script runs with this Python and the options that it was itself started with."""
    for flag, words in (("-m", options.module), ("-c", options.code)):
        if words is not None:
            return [sys.executable, *_flags(), flag, *words, *options.words]
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        options.mistake("a command is needed: a Python script, -m MODULE, -c CODE, or a program")
    is_script = words[0].endswith(".py")
    if not is_script and shutil.which(words[0]):
        return list(words)
    if not Path(words[0]).is_file():
        options.mistake(f"there is no file {words[0]}" + ("" if is_script else ", and no program of that name"))
    return [sys.executable, *_flags(), *words]


def _flags() -> list[str]:
    """Return the options of this interpreter, such as torchrun's -u: the words before its module or script."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise SetupError("a Python that was started with -E, -I or -S cannot be reached: leave that out")
    *flags, _ = sys.orig_argv[1 : 1 + len(sys.orig_argv) - len(sys.argv)]
    if flags and flags[-1].startswith("-") and flags[-1].endswith("m"):
        flags[-1] = flags[-1][:-1]
    return [flag for flag in flags if flag != "-"]
