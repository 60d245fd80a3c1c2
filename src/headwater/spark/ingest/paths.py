"""Places in a record: a column, or a path such as `a.b[0].c`; in an exploded one also `@key`, `@value.c`, `@index`."""

from __future__ import annotations

import re
from dataclasses import dataclass

Step = str | int
_STEP = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)+)"|(?P<name>[^.\[\]"]+)|\[(?P<index>\d+)\]|(?P<dot>\.)')


@dataclass(frozen=True, slots=True)
class Route:
    """`start` is "" for the record, or "key", "value" or "index" for what is exploded; then names and indices."""

    start: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        text = f"@{self.start}" if self.start else ""
        for step in self.steps:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                plain = re.fullmatch(r'[^.\[\]"@][^.\[\]"]*', step)
                text += ("." if text else "") + (step if plain else '"' + re.sub(r'(["\\])', r"\\\1", step) + '"')
        return text


def parse_route(text: str) -> Route | str:
    """The route, or what was expected."""
    start, rest = "", text
    if text.startswith("@"):
        word = re.match(r"@(\w*)", text)
        start = word[1] if word else ""
        if start not in ("key", "value", "index"):
            return "@key, @value or @index"
        rest = text[len(start) + 1 :]
        if rest and rest[0] not in ".[":
            return "a dot or an index after @value"
        rest = rest[1:] if rest.startswith(".") else rest
        if start != "value" and rest:
            return f"nothing after @{start}"
        if not rest:
            return Route(start, ())
    steps: list[Step] = []
    at, wants_name = 0, not rest.startswith("[")
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None:
            return "a path such as a.b[0].c"
        if found["dot"] is not None:
            if wants_name:
                return "a name between two dots"
            wants_name = True
        elif found["index"] is not None:
            if wants_name:
                return "a name before an index"
            steps.append(int(found["index"]))
        else:
            if not wants_name:
                return "a dot between names"
            quoted = found["quoted"]
            steps.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else found["name"])
            wants_name = False
        at = found.end()
    if wants_name or (not start and isinstance(steps[0], int)):
        return "a path that begins and ends with a name or an index: a.b[0].c"
    return Route(start, tuple(steps))
