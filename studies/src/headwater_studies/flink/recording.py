"""What Flink answers to the cases, as a file: `python -m headwater_studies.flink.recording tests/patterns/flink.json`.

Several cases run as one job: Flink takes seconds to start one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater_studies.flink.cases import AGREED, CHANNEL, COLUMNS, DIFFERENT, REFUSED, TAKEN, Case, rows
from headwater_studies.flink.engine import WANTED, Flink, Refused, Table, at, write_events

MILLISECOND = 1_000
AT_ONCE = 8  # cases of one job


def together(cases: Mapping[str, Case], columns: Mapping[str, list[str]]) -> str:
    """One query for all: the name of the case, then its columns as text, as many as the widest has."""
    widest = max(len(columns[name]) for name in cases)
    parts = []
    for name, case in cases.items():
        listed = [f"CAST(`{column}` AS STRING)" for column in columns[name]]
        listed += ["CAST(NULL AS STRING)"] * (widest - len(listed))
        chosen = ", ".join(f"{what} AS c{number}" for number, what in enumerate(listed))
        parts.append(f"SELECT '{name}' AS name, {chosen} FROM ({case.text})")
    return "\nUNION ALL\n".join(parts)


def batched(cases: Iterable[tuple[str, Case]]) -> Iterator[list[tuple[str, Case]]]:
    """Those of one window together: of two patterns that differ in WITHIN alone Flink runs one for both, in one job."""
    by_window = dict[str | None, list[tuple[str, Case]]]()
    for name, case in cases:
        by_window.setdefault(case.within, []).append((name, case))
    for left in by_window.values():
        yield from (left[at : at + AT_ONCE] for at in range(0, len(left), AT_ONCE))


def columns_of(case: Case) -> list[str]:
    """The names of a case's result, as SQL has them: the key, then the measures."""
    measures = case.text.partition("MEASURES ")[2].partition(" ONE ROW")[0]
    return ["k", *(measure.rpartition(" AS ")[2] for measure in measures.split(", "))]


def record(flink: Flink) -> dict[str, Any]:
    events = rows()
    file = write_events(flink.folder / "events.csv", ((*row[:-1], at(row[-1] * MILLISECOND)) for row in events))
    table = Table(CHANNEL, COLUMNS, "ts", file)
    cases = {f"agreed {number}": case for number, case in enumerate(AGREED)} | DIFFERENT | TAKEN
    columns = {name: columns_of(case) for name, case in cases.items()}
    found = list[list[Any]]()
    for some in batched(cases.items()):
        found += flink.matches(table, together(dict(some), columns))[1]
    answers = {
        name: {
            "text": case.text,
            "columns": columns[name],
            "rows": sorted((row[1 : len(columns[name]) + 1] for row in found if row[0] == name), key=str),
        }
        for name, case in cases.items()
    }
    refused = {name: {"text": case.text, "said": _refusal(flink, table, case)} for name, case in REFUSED.items()}
    return {
        "flink": WANTED,
        "events": [[None if value is None else str(value) for value in row] for row in events],
        "agreed": {name: said for name, said in answers.items() if name not in DIFFERENT and name not in TAKEN},
        "different": {name: answers[name] for name in DIFFERENT},
        "taken": {name: answers[name] for name in TAKEN},
        "refused": refused,
    }


def _refusal(flink: Flink, table: Table, case: Case) -> str | None:
    """What Flink says of a query that it does not take; None if it takes it."""
    try:
        flink.matches(table, case.text)
    except Refused as error:
        return str(error).splitlines()[-1] if str(error) else "?"
    return None


def _compact(said: dict[str, Any]) -> str:
    """A line for each row: a file that one can read, and compare with the one before."""
    text = json.dumps(said, indent=1)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", _one_line, text)


def _one_line(found: re.Match[str]) -> str:
    return f"[{' '.join(found[1].split())}]"


def main() -> None:
    with Flink() as flink:
        said = record(flink)
    Path(sys.argv[1]).write_text(_compact(said) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
