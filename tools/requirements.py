"""Prints what pyproject.toml asks for, one requirement a line: the package, its extras, and dependency groups.

`python tools/requirements.py` lists what the tests need; `python tools/requirements.py bench` lists that group only.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    if sys.argv[1:]:
        print("\n".join(requirement for name in sys.argv[1:] for requirement in groups[name]))
        return
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["spark"], *groups["test"], *groups["lint"]]
    print("\n".join(wanted))


if __name__ == "__main__":
    main()
