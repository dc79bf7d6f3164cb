"""Draws docs/images/rooms.svg, the rooms of the package with what each imports, and lists the leaves in a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape

from scripts.rooms import LAYERS, LEAVES, PACKAGE, imports, leaf_named, leaf_of

_BASE = LAYERS[0]
"""Every room may import these; arrows to them are left out."""
_COLUMNS = {
    room: column
    for column, rooms in enumerate(
        (
            "__main__ status catalog version",
            "commands recording atomic_file",
            "exporter endpoint config conditions terminal",
            "outputs tensors model",
            "run feed frameworks",
            "integrations adapters",
        )
    )
    for room in rooms.split()
}
"""The rooms of the core, from left to right, so that few arrows run behind a room."""
_WIDE, _HIGH, _ACROSS, _DOWN = 120, 34, 150, 92
_LEFT, _TOP, _LEAVES_AT, _LEAF_WIDE, _IN_A_ROW = 24, 56, 950, 92, 5
_STYLE = """
  .page { fill: #ffffff }
  text { font: 13px system-ui, sans-serif; fill: #1f2933; text-anchor: middle }
  .note { font-size: 12px; fill: #52606d; text-anchor: start }
  .core { fill: #d9ece9; stroke: #00796b }
  .leaf { fill: #fff7e6; stroke: #c77700; stroke-dasharray: 4 3 }
  .import { fill: none; stroke: #00796b; stroke-opacity: .75 }
  .named { fill: none; stroke: #c77700; stroke-dasharray: 4 3 }
"""


def picture() -> str:
    """Return the picture as SVG."""
    rows = list(reversed(LAYERS))
    places = {
        room: (_LEFT + _COLUMNS[room] * _ACROSS, _TOP + row * _DOWN)
        for row, layer in enumerate(rows)
        for room in layer
        if room in _COLUMNS
    }
    named = defaultdict(list)  # the leaves that the lists of a room name, those of several lists at the first one
    for leaf in LEAVES:
        named[leaf.lists[0].split("/")[0] if leaf.lists else ""].append(leaf.name)
    arrows = sorted((room, other) for room, others in _without_detours(_imported()).items() for other in others)
    parts = [_arrow(places[room], places[other]) for room, other in arrows]
    for room, (x, y) in places.items():
        parts.append(f'<rect class="core" x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="3"/>')
        parts.append(f'<text x="{x + _WIDE // 2}" y="{y + 22}">{escape(room)}</text>')
    free = 0
    for room, leaves in sorted(named.items(), key=lambda item: (places[item[0] or "exporter"][1], -len(item[1]))):
        x, y = places[room or "exporter"]
        top = max(free, y - (len(leaves) - 1) // _IN_A_ROW * (_HIGH + 6))
        if room:
            parts.append(_line(x, y, top))
        for number, name in enumerate(leaves):
            x = _LEAVES_AT + number % _IN_A_ROW * (_LEAF_WIDE + 8)
            y = top + number // _IN_A_ROW * (_HIGH + 6)
            parts.append(f'<rect class="leaf" x="{x}" y="{y}" width="{_LEAF_WIDE}" height="{_HIGH}" rx="14"/>')
            parts.append(f'<text x="{x + _LEAF_WIDE // 2}" y="{y + 22}">{escape(name)}</text>')
            free = y + _HIGH + 6
    height = _TOP + len(rows) * _DOWN - _DOWN + _HIGH + _LEFT
    width = _LEAVES_AT + _IN_A_ROW * (_LEAF_WIDE + 8) + _LEFT - 8
    notes = (
        (_LEFT, "The core. An arrow goes to a room that is imported; one that others imply is left out,"),
        (_LEFT, f"and so are those to the lowest row. {len(places)} rooms."),
        (_LEAVES_AT, "Leaves, beside the room whose list names them;"),
        (_LEAVES_AT, f"logs and demo use display, which no list names. {len(LEAVES)} leaves."),
    )
    for number, (x, note) in enumerate(notes):
        parts.append(f'<text class="note" x="{x}" y="{20 + number % 2 * 17}">{escape(note)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="The rooms of the package: the core with its imports, and the leaves">\n'
        f"<style>{_STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#00796b"/></marker></defs>\n'
        f'<rect class="page" width="{width}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def page(text: str) -> str:
    """Return docs/architecture.md, whose ``text`` this is, with the table of the leaves as it has to be."""
    start, end = "<!-- leaves: `make generate` writes this table -->\n", "<!-- end -->"
    before, _, rest = text.partition(start)
    rows = [
        f"| {leaf.name} | {leaf.what} | {_code(leaf.files)} | {_code(leaf.lists)} | {_code(leaf.needs)} |"
        for leaf in LEAVES
    ]
    head = ("| Leaf | What it is | Files | Named in | Needs |", "|---|---|---|---|---|")
    return f"{before}{start}\n" + "\n".join((*head, *rows)) + f"\n\n{end}{rest.partition(end)[2]}"


def _code(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _imported() -> dict[str, set[str]]:
    """Return the rooms that each room of the core imports, those of the lowest row left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE).as_posix()
        room = file.split("/")[0].removesuffix(".py")
        if room != "__init__" and not leaf_of(file):
            others = {name.split(".")[1] for name in imports(path) if not leaf_named(name)}
            found[room] |= {other for other in others if other in _COLUMNS and other not in (room, *_BASE)}
    return found


def _without_detours(graph: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return ``graph`` without the arrows that lead where a way over another room leads too."""

    def reached(start: str, seen: frozenset[str]) -> set[str]:
        after = set(graph.get(start, ())) - seen
        return after.union(*(reached(other, seen | after) for other in after))

    return {
        room: {other for other in others if not any(other in reached(via, frozenset()) for via in {*others} - {other})}
        for room, others in graph.items()
    }


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, end
    if y == to_y and abs(to_x - x) == _ACROSS:
        x, to_x = (x + _WIDE, to_x) if to_x > x else (x, to_x + _WIDE)
        path = f"M{x} {y + _HIGH // 2} H{to_x}"
    else:
        shift = max(-36, min(36, (to_x - x) // 12))  # arrows that leave one room in several directions part at once
        x, y, to_x = x + _WIDE // 2 + shift, y + _HIGH, to_x + _WIDE // 2 - shift
        under = to_y <= y  # a room of the same row that is further away
        bend = 30 if under else (to_y - y) // 2
        to_y, back = (y, y + bend) if under else (to_y, to_y - bend)
        path = f"M{x} {y} C{x} {y + bend} {to_x} {back} {to_x} {to_y}"
    return f'<path class="import" d="{path}" marker-end="url(#head)"/>'


def _line(x: int, y: int, top: int) -> str:
    """Return the line from a room to its leaves, whose first row is at ``top``: over the rooms beside it, or below."""
    middle = top + _HIGH // 2
    if top > y:
        path = f"M{x + 20} {y + _HIGH} V{middle} H{_LEAVES_AT}"
    else:
        path = f"M{x + _WIDE} {y + _HIGH // 2} h12 V{y - 10} H{_LEAVES_AT - 12} V{middle} h12"
    return f'<path class="named" d="{path}"/>'
