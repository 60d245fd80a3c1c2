"""Prints what pyproject.toml asks for, one requirement a line: the package, all its extras, and dependency groups.

`python tools/requirements.py` lists what the tests need; `python tools/requirements.py bench` what benchmarks and
studies need beside: that group, and the peers of studies/pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OWN = re.compile(r"headwater\[(.*)\]")
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    project, studies = (read(each) for each in ("pyproject.toml", "studies/pyproject.toml"))
    groups = project["dependency-groups"]
    if sys.argv[1:] == ["bench"]:
        print("\n".join([*groups["bench"], *studies["project"]["optional-dependencies"]["peers"]]))
        return
    wanted = [*project["project"]["dependencies"], *extra("all", project), *groups["test"], *groups["lint"]]
    print("\n".join(dict.fromkeys(wanted)))


def read(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def extra(name: str, project: dict[str, Any]) -> Iterator[str]:
    """The requirements of an extra, with those of the extras in it."""
    for requirement in project["project"]["optional-dependencies"][name]:
        if inner := OWN.fullmatch(requirement):
            for each in inner[1].split(","):
                yield from extra(each, project)
        else:
            yield requirement


if __name__ == "__main__":
    main()
