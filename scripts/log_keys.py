"""The log keys of a trainer, read from the syntax trees of its sources.

A key is a string with which something is put among the metrics: `self._metrics[mode]["reward"]`, a dictionary that is
assigned to `metrics`, added to it or handed to `self.log`. What a source does not say is in braces:
`rewards/{reward_func_name}/mean`. Names are followed to what they are bound to: constants, the branches of a
conditional, the items of a literal loop, the arguments of calls in the same sources. Keys of an evaluation are those of
training with `eval_` before them, and are given without it.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

_SINK = re.compile(
    r"(.*\.)?_?((stored|pending|last|tool)_)?metrics(\[[^]]*\])*|(self\.)?stats|logs|self\._(rates|counters)"
)
_CALL = re.compile(r"(.*\.)?(log|log_metrics|store_metrics|_push_metrics)|(.*\.)?_?(metrics(\[[^]]*\])*|logs)\.update")
_TABLES = re.compile(r"wandb\.log|\w*backend\w*\.log|\w*trackio\w*\.log|math\.log|torch\.log|np\.log")
_NAMED = re.compile("metrics$|^stats$|^logs$|^_rates$|^_counters$")
_CALLED = {"log", "log_metrics", "store_metrics", "_push_metrics", "update"}
_MODES = {"train", "eval", "{mode}", "{train_eval}", ""}
_UNKNOWN = re.compile(r"\{[^{}]*\}")
_NUMBER = re.compile(r"\{-?\d+\}")

Names = Mapping[str, Sequence[ast.expr | None]]
"""What each name of a function is bound to; None where that is nothing that a syntax tree can tell."""


def logged(trees: Iterable[ast.AST]) -> set[str]:
    """Return the keys that the functions of ``trees`` log."""
    functions = {each: list(ast.walk(each)) for tree in trees for each in _functions(tree)}
    calls = _calls(itertools.chain.from_iterable(functions.values()))
    found = set[str]()
    for function, nodes in functions.items():
        keys = [key for node in nodes for key in _keys(node)]
        if keys:
            names = {**_given(function, calls), **_bound(nodes)}
            found |= {text.removeprefix("eval_") for key in keys for text in _texts(key, names)}
    return {key for key in found - _MODES if not _NUMBER.fullmatch(key)}


def inherited(classes: Sequence[ast.ClassDef]) -> Iterator[ast.FunctionDef]:
    """Yield the methods of the bases that run: those that no class before them has without calling `super()`'s."""
    hidden = set[str]()
    for each in classes:
        methods = [node for node in each.body if isinstance(node, ast.FunctionDef)]
        if each is not classes[0]:
            yield from (node for node in methods if node.name not in hidden)
        hidden |= {node.name for node in methods if f"super().{node.name}(" not in ast.unparse(node)}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the outermost functions, methods included: what is in them shares their names."""
    if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield tree
        return
    for child in ast.iter_child_nodes(tree):
        yield from _functions(child)


def _keys(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of keys that ``node`` puts among the metrics."""
    if isinstance(node, ast.Subscript) and _sink(node.value):
        yield node.slice
    dicts: list[ast.expr] = []
    if isinstance(node, ast.Assign) and _sink(node.targets[0]):
        dicts = [node.value]
    if isinstance(node, ast.Call) and _last(node.func) in _CALLED:
        function = ast.unparse(node.func)
        if _CALL.fullmatch(function) and not _TABLES.fullmatch(function):
            dicts = [*node.args, *(each.value for each in node.keywords)]
            calls = (each for each in node.args if isinstance(each, ast.Call) and ast.unparse(each.func) == "dict")
            yield from (ast.Constant(each.arg) for call in calls for each in call.keywords if each.arg)
    for each in itertools.chain.from_iterable(map(ast.walk, dicts)):
        if isinstance(each, ast.Dict):
            yield from filter(None, each.keys)
        if isinstance(each, ast.DictComp):
            yield each.key


def _sink(node: ast.expr) -> bool:
    inner = node
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    return bool(_NAMED.search(_last(inner))) and bool(_SINK.fullmatch(ast.unparse(node)))


def _last(node: ast.expr) -> str:
    """Return the last part of a name: `log` of `self.log`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _bound(nodes: Iterable[ast.AST]) -> Names:
    """Return what the names of a function are assigned, and what its loops over literals give them."""
    names = defaultdict[str, list[ast.expr | None]](list)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id].append(node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            for name, value in _turns(node.target, node.iter):
                names[name].append(value)
    return names


def _turns(target: ast.expr, over: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names of a loop with what they get in each turn."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and isinstance(over.func.value, ast.Dict):
        pairs = over.func.value
        over = ast.Tuple(
            [ast.Tuple([key or value, value]) for key, value in zip(pairs.keys, pairs.values, strict=True)]
        )
    turns = over.elts if isinstance(over, (ast.Tuple, ast.List)) else [None]
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    for turn in turns:
        whole = len(targets) == 1
        values = turn.elts if isinstance(turn, ast.Tuple) and not whole else [turn] * len(targets)
        for name, value in zip(targets, values, strict=False):
            if isinstance(name, ast.Name):
                yield name.id, value


def _calls(nodes: Iterable[ast.AST]) -> Mapping[str, Sequence[ast.Call]]:
    """Return the calls among ``nodes``, by the last part of what they call."""
    calls = defaultdict[str, list[ast.Call]](list)
    for node in nodes:
        if isinstance(node, ast.Call):
            calls[_last(node.func)].append(node)
    return calls


def _given(function: ast.FunctionDef | ast.AsyncFunctionDef, calls: Mapping[str, Sequence[ast.Call]]) -> Names:
    """Return what the parameters of a function are given: constants of the calls, else what no tree can tell."""
    parameters = [each.arg for each in function.args.args if each.arg != "self"]
    given = dict[str, list[ast.expr | None]]()
    for place, name in enumerate(parameters):
        values = [
            next((each.value for each in call.keywords if each.arg == name), call.args[place : place + 1] or None)
            for call in calls.get(function.name, ())
        ]
        flat = [each[0] if isinstance(each, list) else each for each in values]
        given[name] = [each if isinstance(each, (ast.Constant, ast.IfExp)) else None for each in flat]
    return given


def _texts(node: ast.expr, names: Names, depth: int = 4) -> set[str]:
    """Return what a key can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.FormattedValue):
        return _texts(node.value, names, depth)
    if isinstance(node, ast.JoinedStr):
        return _joined(node.values, names, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined((node.left, node.right), names, depth)
    if isinstance(node, ast.IfExp):
        return _texts(node.body, names, depth) | _texts(node.orelse, names, depth)
    unknown = "{" + ast.unparse(node) + "}"
    if isinstance(node, ast.Name) and depth and names.get(node.id):
        found = [_texts(each, names, depth - 1) if each else {unknown} for each in names[node.id]]
        return {unknown if _UNKNOWN.fullmatch(each) else each for texts in found for each in texts}
    return {unknown}


def _joined(parts: Iterable[ast.expr], names: Names, depth: int) -> set[str]:
    return {"".join(each) for each in itertools.product(*(sorted(_texts(part, names, depth)) for part in parts))}
