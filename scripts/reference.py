"""Reference pages that are made from the code: docs/settings.md, docs/cli.md and docs/python.md."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import rlexporter
from rlexporter.commands import COMMANDS, main
from rlexporter.config.settings import FROM, FROM_TEXT, Settings, argument
from scripts import arguments
from scripts.pack.markdown import table

_TEXTS = Path(__file__).parent / "texts"
_EXPORTER = "start log observe end close name should_stop state url port snapshot run".split()
"""What a user needs of an exporter, in the order of its life."""
_FEW = 6
"""Fewer choices than these stand in the argument itself."""


def pages() -> dict[str, str]:
    """Return the pages, by path below the root of the repository."""
    return {"docs/settings.md": settings(), "docs/cli.md": commands(), "docs/python.md": python()}


def settings() -> str:
    """Return a table of all settings: argument, member of its group, variable, default, and what each is for."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(Settings))).body
    assert isinstance(declared, ast.ClassDef)
    texts = {
        ast.unparse(field.target): _plain(ast.literal_eval(text.value))
        for field, text in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    rows = []
    for field in fields(Settings):
        group, member, env = (field.metadata[name] for name in ("group", "member", "env"))
        of_group = f"`{group.name}.{member}`" if group else ""
        rows.append((f"`{argument(field)}`", of_group, f"`{env}`", _default(field), texts[field.name]))
    rows.append(("", "", f"`{FROM}`", "", FROM_TEXT))
    return _page("settings.md", table(("Argument", "Member", "Variable", "Default", "What it is for"), rows))


def _default(field: Field[Any]) -> str:
    if field.metadata["found"]:
        return "found"
    if field.default is True:
        return "`on`"
    if isinstance(field.default, float):
        return f"{field.default:g}"
    return str(field.default) if isinstance(field.default, int) else f"`{field.default}`" if field.default else ""


def commands() -> str:
    """Return a section for each command: what it is for, how it is called, its arguments, what it prints."""
    parser = main.parser(COMMANDS)
    known = _subcommands(parser)
    overview = table(("Command", "What it is for"), ((f"[`{name}`](#{name})", text) for name, text, _ in known))
    return _page("cli.md", "\n".join((overview, *(_command(name, text, each) for name, text, each in known))))


def _subcommands(parser: argparse.ArgumentParser) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """Names, help and parsers of the commands. argparse has no public way to ask for them."""
    (group,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return [(str(each.dest), _plain(each.help or ""), group.choices[each.dest]) for each in group._choices_actions]


def _command(name: str, text: str, parser: argparse.ArgumentParser, level: str = "##") -> str:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    actions = [each for each in parser._actions if not isinstance(each, hidden) and each.help != argparse.SUPPRESS]
    parts = [f"{level} {name}\n", _sentence(parser.description or text)]
    parts.append(f"```\n{_usage(parser, actions)}\n```\n")
    if actions:
        parts.append(table(("Argument", "What it is for"), map(_argument, actions)))
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```\n")
    if any(isinstance(each, argparse._SubParsersAction) for each in parser._actions):
        parts.extend(_command(f"{name} {each}", text, sub, "###") for each, text, sub in _subcommands(parser))
    return "\n".join(parts)


def _usage(parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> str:
    """The line of a call. Not argparse's own, which breaks lines in another way in each Python."""
    if any(isinstance(each, argparse._SubParsersAction) for each in parser._actions):
        return f"{parser.prog} COMMAND ..."
    if parser.usage:
        return str(parser.usage).replace("%(prog)s", parser.prog)
    options = " [OPTIONS]" if any(each.option_strings and not each.required for each in actions) else ""
    needed = "".join(f" {_flag(each)}" for each in actions if each.option_strings and each.required)
    return f"{parser.prog}{options}{needed}" + "".join(
        f" {_value(each)}" for each in actions if not each.option_strings
    )


def _flag(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {_value(action)}"
    return f"{', '.join(action.option_strings)}{value}"


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        name = action.metavar
    else:
        choices = _choices(action)
        name = "|".join(choices) if 0 < len(choices) < _FEW else action.dest.upper()
    return {"+": f"{name} [{name} ...]", "*": f"[{name} ...]", "?": f"[{name}]", "...": f"{name} ..."}.get(
        str(action.nargs), name
    )


def _choices(action: argparse.Action) -> list[str]:
    return [str(each) for each in action.choices or ()]


def _argument(action: argparse.Action) -> tuple[str, str]:
    flag = _flag(action) if action.option_strings else _value(action)
    text = _plain((action.help or "") % {"default": action.default, "prog": "rlexporter"})
    if len(_choices(action)) >= _FEW:
        text += f"{': ' if text else ''}{', '.join(f'`{each}`' for each in _choices(action))}"
    return f"`{flag}`", text


def python() -> str:
    """Return the public names of the package, with their signatures and docstrings."""
    exporter = rlexporter.Exporter
    parts = [_documented("rlexporter.attach", rlexporter.attach), _documented("rlexporter.Exporter", exporter)]
    parts += [_documented(f"exporter.{name}", getattr(exporter, name), "###") for name in _EXPORTER]
    for name in ("RLExporterCallback", "RLExporterTracker", "SetupError"):
        parts.append(_documented(f"rlexporter.{name}", getattr(rlexporter, name)))
    for group, settings in arguments.groups().items():  # not of the classes, which may be about to be generated
        members = [each.metadata["member"] for each in settings]
        if group.plain:
            members.insert(1, "*")
        call = f"rlexporter.{group.name}({', '.join(members)})"
        parts.append(f"## {group.name}\n\n```\n{call}\n```\n\nArgument `{group.argument}`: {group.text}\n")
    return _page("python.md", "\n".join(parts))


def _documented(name: str, thing: Callable[..., Any] | property, level: str = "##") -> str:
    text = inspect.getdoc(thing) or ""
    text = re.sub(r"\nRaises:\n\s+(\w+): ", r"\n**Raises** `\1`: ", text.replace("``", "`"))
    return f"{level} {name.rpartition('.')[2]}\n\n```\n{_signature(name, thing)}\n```\n\n{text}\n"


def _signature(name: str, thing: Callable[..., Any] | property) -> str:
    if isinstance(thing, property):
        got = thing.fget.__annotations__["return"] if thing.fget else ""
        return f"{name}: {got}"
    if isinstance(thing, type) and issubclass(thing, Exception):
        return name
    signature = inspect.signature(thing)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=kept)).replace("'", "").removesuffix(" -> None")
    return name + re.sub(r"Unpack\[\w+\]", "settings", text)


def _page(name: str, made: str) -> str:
    """A text of `texts` with what was made in its gap."""
    head, tail = (_TEXTS / name).read_text().split("@@\n")
    note = "<!-- Generated by `make generate` from the code and scripts/texts. Do not edit. -->\n\n"
    return f"{note}{head}{made}{tail}"


def _plain(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    text = _plain(text)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}\n"
