"""How much memory it takes to run moved code, measured in a process that has nothing else in it.

Run as a file, not as a module of the package, whose opening loads everything: `weigh.py FILE` reads lines of hex from
the file, an event's record and then serial forms of interests in its type, and says as JSON what each step has added.
Steps: an interpreter only; the compiler, with the first interest; more interests, which all stay; and everything.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any


def memory() -> dict[str, int]:
    """Bytes in memory: all of them, and those that are this process's alone."""
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in ("Rss", "Private_Clean", "Private_Dirty"):
            found[name] = int(rest.split()[0]) * 1024
    return {"resident": found["Rss"], "private": found["Private_Clean"] + found["Private_Dirty"]}


def bare() -> None:
    """The package without what it loads when it is imported as a whole."""
    spec = find_spec("headwater")
    assert spec is not None and spec.submodule_search_locations is not None
    package: Any = ModuleType("headwater")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["headwater"] = package


def weigh(path: str) -> dict[str, Any]:
    record, *serials = (bytes.fromhex(line) for line in Path(path).read_text(encoding="ascii").split())
    steps = {"Python": memory()}
    bare()
    interests: Any = import_module("headwater.interest").Interest
    first = interests.loads(serials[0])
    first.interpret(record)
    without = "llvmlite" not in sys.modules
    steps["interpreter"] = memory()
    code: Any = import_module("headwater.native.record").RecordCode
    loaded = [code(first.executed)]
    steps["compiler"] = memory()
    for serial in serials[1:]:
        loaded.append(code(interests.loads(serial).executed))
    steps["interests"] = memory()
    bytes_ = sum(each.code.size for each in loaded)
    del sys.modules["headwater"]
    import_module("headwater")
    import_module("headwater.federation.engine")
    steps["everything"] = memory()
    return {"steps": steps, "interpreted without llvmlite": without, "interests": len(loaded), "code": bytes_}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(weigh(sys.argv[1])) + "\n")
