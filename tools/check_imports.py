"""Imports point down only. Prints every import that does not, and exits 1 if there is one.

A room may import rooms below it in ROOMS and nothing above or beside it. A large room has rooms of its own, its inner
rooms, for which the same holds: INNER. Modules that import each other, directly or by way of others, are a cycle: none
may have more than LARGEST_CYCLE modules. What is imported for type checkers only (`if TYPE_CHECKING:`) counts like any
other import: who reads one module has to know the other.

Some third-party packages belong to one room each, so that the rest of the project does not depend on them. Heavy ones
are loaded when they are first used.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

# Lowest first; rooms on one line stand side by side and do not know each other.
ROOMS: tuple[tuple[str, ...], ...] = (
    (
        "completion",
        "decoders",
        "durations",
        "errors",
        "formats",
        "late_names",
        "python_versions",
        "signals",
        "spelling",
        "text_width",
        "threads",
        "version",
    ),
    ("arguments", "extras"),
    ("late",),
    ("text_tables",),
    ("types",),
    ("runnable",),
    ("ir",),
    ("lang", "native"),
    ("interest",),
    ("contextual", "match"),
    ("patterns",),
    ("store",),
    ("objects",),
    ("channel",),
    ("services",),
    ("federation",),
    # What users import beside the names at the top: each of these modules gathers one subject.
    (
        "correlation",
        "dispatch",
        "library",
        "logs",
        "names",
        "network",
        "policy",
        "questions",
        "reports",
        "security",
        "testing",
        "timers",
    ),
    ("bridges",),
    ("spark",),
    ("study",),
    ("explanation",),
    ("cli",),
    ("__main__",),
)
# The rooms of a room, as above: its packages and modules, all of them. Not listed here: a room of a few modules. What
# is joined by + is one room of several modules, which may know each other.
INNER: dict[str, tuple[tuple[str, ...], ...]] = {
    "channel": (
        ("dispatch", "names", "services", "time"),
        ("options",),
        ("annotations", "concurrency"),
        ("backlog", "reports"),
        ("routing",),
        ("queues",),
        ("source_context", "source_rate"),
        ("channel+contract+source+subscription",),
        ("correlation", "registration", "report_collection", "shutdown", "timer_events", "warning"),
        ("groups", "objects", "patterns", "questions"),
        ("node",),
        ("replay",),
    ),
    "federation": (
        ("address_map", "alone", "endpoints", "exit_hook", "failures", "wire", "worker_pool"),
        ("scheduler", "security"),
        ("network",),
        ("context",),
        ("control_events", "fabric"),
        ("transport",),
        ("demand",),
        ("arrive", "send"),
        ("peers",),
        ("multicast",),
        ("interests",),
        ("groups", "library", "logs", "moving", "objects", "order", "patterns", "policy"),
        ("engine",),
        ("readiness", "report+report_collection"),
        ("node",),
        ("gateway",),
        ("naming",),
        ("command",),
    ),
    "ir": (
        ("domain", "functions", "library", "nodes", "outputs"),
        ("interp", "intervals", "notes", "ordering", "walk"),
        ("backend", "conjunction", "functional", "inputs", "operators", "state"),
        ("build", "params", "show"),
        ("encode", "flow", "uses", "value", "verify"),
        ("loops", "rebind", "simplify", "unserial"),
        ("analyse", "context"),
        ("cost", "rewrite"),
        ("serial",),
        ("boxes", "covers", "package"),
        ("certainty",),
    ),
    "ir.boxes": (
        ("enclosure", "interval"),
        ("floats", "truth", "whole"),
        ("texts",),
        ("tape",),
        ("expansion",),
        ("slope_rules",),
        ("tangle",),
        ("corners", "owners"),
        ("decider",),
        ("account",),
    ),
    "lang": (
        ("names", "pyloops", "source"),
        ("ecode_text", "predicate_tokens", "pysource"),
        ("ecode_types", "predicate_terms", "pyconst", "pyrecovery"),
        ("ecode_expr", "predicate", "pyexpr"),
        ("ecode_decl", "ecode_recovery", "infer", "pystmt"),
        ("ecode", "pyfunc"),
    ),
    "native": (
        ("builtin_functions", "cache", "emit", "engine", "once"),
        ("env", "kernels", "python", "subset"),
        ("codegen",),
        ("record",),
        ("batch", "table"),
        ("rowwise",),
        ("program",),
    ),
    "objects": (
        ("expressions", "journal", "names", "operations", "tables"),
        ("builder", "reactions", "turn_clock"),
        ("limits", "observers", "rates"),
        ("object_types",),
        ("methods", "outbox", "world"),
        ("execution",),
        ("checker",),
        ("turn",),
        ("line", "shares"),
        ("queue",),
        ("replicas", "triggers"),
        ("zones",),
        ("engine",),
    ),
    "spark": (
        ("log_columns", "schema", "session", "sql_text", "unsupported"),
        ("arithmetic", "columns", "compare", "ingest", "validity", "worker"),
        ("arrow", "library"),
        ("column",),
        ("frame",),
        ("declared_frame", "live", "log", "patterns"),
        ("backtest",),
    ),
    "patterns": (
        ("written",),
        (
            "model",
            "notation",
        ),
        (
            "automaton",
            "structure",
        ),
        (
            "crossing",
            "description",
            "engine",
            "result",
        ),
        (
            "checker",
            "picture",
            "plan",
            "run",
        ),
        ("serial_forms",),
        ("serial_reader",),
        ("serial",),
        ("explanation+pattern",),
    ),
    "patterns.checker": (
        (
            "channel_names",
            "scope",
            "window",
        ),
        ("contradictions",),
        ("expressions", "verify"),
        (
            "channels",
            "tree",
        ),
        ("variables",),
        ("check",),
    ),
    "patterns.run": (
        ("events", "folds", "letters", "record_reading"),
        ("identity", "reading"),
        ("matches",),
        ("order",),
        ("batches", "results", "runner_state"),
        ("runner",),
        ("held_values", "result_batches"),
    ),
    "patterns.engine": (
        (
            "arrays",
            "found",
            "layout",
            "memory",
            "views",
        ),
        (
            "partitions",
            "registers",
            "trees",
        ),
        (
            "dag",
            "keys",
            "run_lists",
        ),
        (
            "index",
            "links",
            "partitioned",
            "runs",
        ),
        (
            "apart",
            "shared",
            "tapes",
        ),
        (
            "linked",
            "separate",
        ),
        ("choice",),
    ),
    "patterns.notation": (
        (
            "characters",
            "python",
            "show",
            "sql_words",
        ),
        (
            "clauses",
            "sql_clauses",
            "sql_edits",
            "sql_intervals",
            "sql_row_pattern",
        ),
        (
            "sql_terms",
            "text",
        ),
        ("match_recognize",),
        ("sql_statement",),
    ),
    "channel.patterns": (
        ("blind_spots",),
        (
            "definition",
            "kept",
            "operator",
            "outlets",
            "watermark",
        ),
        ("resumption",),
        (
            "keeping",
            "stage",
        ),
        ("report",),
        ("subscription",),
        (
            "cycles",
            "kept_pattern",
        ),
        ("creation",),
    ),
    "federation.patterns": (
        (
            "crossed",
            "past",
            "placed",
            "service",
            "sources",
        ),
        ("missed",),
        ("asking",),
        ("narrow_nodes",),
        (
            "narrowing",
            "placement",
        ),
    ),
    "spark.patterns": (
        (
            "runs",
            "shapes",
        ),
        (
            "sending",
            "windows",
        ),
        (
            "group",
            "sorting",
        ),
        ("stateful",),
        ("streaming",),
        ("matching",),
        ("statement",),
    ),
    "store.log": (
        ("background", "folder_exchange", "location", "progress_bar", "seal"),
        ("layout", "parquet_footer", "settings"),
        ("schema",),
        ("footers", "ordered_merge", "table_rows", "wal"),
        ("interest_scan", "parquet_segment", "wal_writer"),
        ("recent_events", "recovery", "staging", "tail"),
        ("snapshot",),
        ("orphan_segments", "reader", "retention", "rewrite"),
        ("channel_log", "compact", "log_reader"),
        ("handed_past", "log_folder"),
        ("export", "repair", "verify"),
        ("command",),
    ),
}
LARGEST_CYCLE = 5  # modules
# Rooms that have a larger one, to be undone: how large it may be until then.
UNDONE: dict[str, int] = {}
OWNERS = {
    "llvmlite": ("native",),
    "sqlglot": ("lang",),
    "pycparser": ("lang",),
    "pyspark": ("spark",),
    "sqlite3": ("store",),
    "zenoh": ("federation",),
    "cryptography": ("federation",),
}
# Heavy packages, by the name under which `headwater.late` has them loaded when they are first used. Elsewhere nobody
# imports them, but rooms that are only entered by those who need them.
LATE = {
    "asyncio": "asyncio",
    "ds": "pyarrow",
    "llvm": "llvmlite",
    "np": "numpy",
    "pa": "pyarrow",
    "pc": "pyarrow",
    "pq": "pyarrow",
}
HEAVY = frozenset(LATE.values())
ENTERED_FOR_THEM = ("late", "study", "bridges")
# The package's own face re-exports what users need; it is not a room.
FACE = "__init__"

# The second distribution, which measures the first.
STUDIES = "headwater_studies"
STUDIES_ROOMS: tuple[tuple[str, ...], ...] = (
    ("fleet", "flink", "scale"),
    ("harness",),
    ("latency", "filters", "overhead", "growth", "objects", "patterns", "peers", "zones"),
    ("model",),
    ("command",),
    ("extension",),
)

LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append((node.lineno, "." * node.level + (node.module or "")))
            elif node.module in ("headwater", "headwater.late"):
                found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
            elif node.module:
                found.append((node.lineno, node.module))
    return found


class _WhileImported(ast.NodeVisitor):
    """Finds where a module uses some names while it is being imported: outside of functions, and not in annotations."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.lines = names, list[int]()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if part is not None:
                self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in node.args.defaults:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.names:
            self.lines.append(node.lineno)


def used_too_early(tree: ast.Module) -> list[int]:
    """The lines that would load a heavy package as soon as the module is imported."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "headwater.late"]
    visitor = _WhileImported({alias.name for node in found for alias in node.names} & set(LATE))
    visitor.visit(tree)
    return visitor.lines


def problems(root: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        room = parts[0]
        if room == FACE:
            continue
        if room not in LEVEL:
            lines.append(f"{path}:1: room {room!r} is not in ROOMS of tools/check_imports.py")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line in used_too_early(tree):
            lines.append(f"{path}:{line}: this loads a heavy package with the module: put it into a function")
        for line, name in imports(tree):
            top, _, rest = name.partition(".")
            package = LATE.get(rest.removeprefix("late."), "") if rest.startswith("late.") else top
            if top in HEAVY and room not in ENTERED_FOR_THEM:
                lines.append(f"{path}:{line}: {top} is loaded when it is first used: take it from headwater.late")
            if name.startswith("."):
                lines.append(f"{path}:{line}: relative import {name!r}: write it from headwater")
            elif top == "headwater":
                other = rest.partition(".")[0]
                if not other or other not in LEVEL:
                    lines.append(f"{path}:{line}: imports {name!r}, which is no room")
                elif other != room and LEVEL[other] >= LEVEL[room]:
                    lines.append(f"{path}:{line}: {room} may not import {other}: imports point down only")
            if top == STUDIES:
                lines.append(f"{path}:{line}: {STUDIES} measures Headwater, which does not know it")
            if package in OWNERS and room not in (*OWNERS[package], "late"):
                lines.append(f"{path}:{line}: only {', '.join(OWNERS[package])} may import {package}")
    return lines


# ── inner rooms, and cycles ──

Graph = dict[str, dict[str, int]]  # by module: the modules of the package that it imports, and the line where it does


def graph(root: Path) -> Graph:
    """What each module of the package imports of it, type checking included."""
    paths = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    found: Graph = {}
    for module, path in paths.items():
        edges = found[module] = {}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                if name in paths and name != module:
                    edges.setdefault(name, node.lineno)  # type: ignore[attr-defined]
    return found


def inner_problems(root: Path, edges: Graph, inner: dict[str, tuple[tuple[str, ...], ...]]) -> list[str]:
    """Imports between the rooms of a room that do not point down, and rooms that no table has."""
    lines: list[str] = []
    for room, rows in inner.items():
        level = {name: at for at, names in enumerate(rows) for joined in names for name in joined.split("+")}
        home = {name: joined for names in rows for joined in names for name in joined.split("+")}
        folder, prefix = root.joinpath(*room.split(".")), f"{root.name}.{room}."
        there = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        there -= {FACE}
        for name in sorted(there - set(level)):
            lines.append(f"{folder / name}: room {room}.{name} is not in INNER[{room!r}] of tools/check_imports.py")
        for name in sorted(set(level) - there):
            lines.append(f"{folder}: INNER[{room!r}] of tools/check_imports.py has {name!r}, which is not there")
        for module, imported in sorted(edges.items()):
            own = module.removeprefix(prefix).partition(".")[0]
            if not module.startswith(prefix) or own not in level:
                continue
            for name, line in sorted(imported.items()):
                other = name.removeprefix(prefix).partition(".")[0]
                if not name.startswith(prefix) or other not in level or home[other] == home[own]:
                    continue
                if level[other] >= level[own]:
                    where = "above" if level[other] > level[own] else "beside"
                    lines.append(
                        f"{_path(root, module)}:{line}: {room}.{own} may not import {room}.{other}, which is {where} "
                        "it (also not for type checkers): pass in what is needed, or declare it as a protocol below"
                    )
    return lines


def _path(root: Path, module: str) -> Path:
    return root.parent.joinpath(*module.split(".")).with_suffix(".py")


def cycles(edges: Graph) -> list[list[str]]:
    """Sets of modules that import each other, directly or by way of others (strongly connected components)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in edges.get(module, ()):
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for module in edges:
        if module not in index:
            visit(module)
    return found


def cycle_problems(edges: Graph, most: int, undone: dict[str, int]) -> list[str]:
    """Cycles that are too large."""
    lines = []
    for modules in cycles(edges):
        room = modules[0].split(".")[1]
        limit = max(most, undone.get(room, 0))
        if len(modules) > limit:
            lines.append(
                f"{len(modules)} modules of {room} import each other, more than {limit}: {', '.join(modules)}; have "
                "parts get what they need as arguments, or declare it as a protocol in the lower one"
            )
    return lines


# ── the studies ──


def studies_problems(root: Path, rows: tuple[tuple[str, ...], ...] = STUDIES_ROOMS) -> list[str]:
    """The studies are a distribution of their own: they import Headwater, and the rooms of theirs that are below."""
    lines: list[str] = []
    level = {room: number for number, rooms in enumerate(rows) for room in rooms}
    for path in sorted(root.rglob("*.py")):
        room = path.relative_to(root).with_suffix("").parts[0]
        if room == FACE:
            continue
        if room not in level:
            lines.append(f"{path}:1: room {room!r} is not in STUDIES_ROOMS of tools/check_imports.py")
            continue
        for line, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if name.startswith("."):
                lines.append(f"{path}:{line}: relative import {name!r}: write it from {STUDIES}")
            elif top == STUDIES and other not in level:
                lines.append(f"{path}:{line}: imports {name!r}, which is no room")
            elif top == STUDIES and other != room and level[other] >= level[room]:
                lines.append(f"{path}:{line}: {room} may not import {other}: imports point down only")
    return lines


def main() -> int:
    top = Path(__file__).resolve().parent.parent
    root, studies = top / "src" / "headwater", top / "studies" / "src" / STUDIES
    edges = graph(root)
    inner = {module: to for module, to in edges.items() if not module.endswith(FACE)}
    found = problems(root) + inner_problems(root, edges, INNER) + cycle_problems(inner, LARGEST_CYCLE, UNDONE)
    found += studies_problems(studies) + cycle_problems(graph(studies), LARGEST_CYCLE, {})
    print("\n".join(found) if found else "imports point down only: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
