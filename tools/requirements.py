"""Prints what pyproject.toml asks for, one requirement a line: the package, all its extras, and dependency groups.

`python tools/requirements.py` lists what the tests need; `python tools/requirements.py bench` lists that group only.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OWN = re.compile(r"headwater\[(.*)\]")


def main() -> None:
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    if sys.argv[1:]:
        print("\n".join(requirement for name in sys.argv[1:] for requirement in groups[name]))
        return
    wanted = [*project["project"]["dependencies"], *extra("all", project), *groups["test"], *groups["lint"]]
    print("\n".join(dict.fromkeys(wanted)))


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
