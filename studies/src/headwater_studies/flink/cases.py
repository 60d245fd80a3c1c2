"""Row patterns that Flink can say, over streams that are odd enough to matter: ties in time, missing values, ends of
windows, matches within matches. One table holds all streams, each as a partition of its own.

What Flink answers is recorded (`recording`), so that Headwater is compared with it where there is no Flink.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

CHANNEL = "readings"
COLUMNS = (
    ("id", "BIGINT"),
    ("k", "STRING"),
    ("kind", "STRING"),
    ("v", "BIGINT"),
    ("f", "DOUBLE"),
    ("ts", "TIMESTAMP(3)"),
)
EVENT = "id: i64, k: text?, kind: text, v: i64?, f: f64?, ts: timestamp"  # the same as an event type of Headwater's
STREAMS = 40
LONGEST = 12
SEED = 15

Row = tuple[int, str | None, str, int | None, float | None, int]  # the time in milliseconds


@dataclass(frozen=True, slots=True)
class Case:
    """A pattern, and the variables of it that are measured: the first and the last row of each, and their number."""

    pattern: str
    define: str
    variables: str = "ABC"
    after: str = "PAST LAST ROW"
    within: str | None = "5"
    more: str = ""  # further measures

    @property
    def text(self) -> str:
        """The whole text, the same for both."""
        measures = [
            f"FIRST({name}.id) AS first_{name}, LAST({name}.id) AS last_{name}, COUNT({name}.id) AS count_{name}"
            for name in self.variables
        ]
        window = "" if self.within is None else f" WITHIN INTERVAL '{self.within}' SECOND"
        return (
            f"SELECT * FROM {CHANNEL} MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
            f"MEASURES {', '.join(measures)}{self.more} ONE ROW PER MATCH AFTER MATCH SKIP {self.after} "
            f"PATTERN ({self.pattern}){window} DEFINE {self.define})"
        )


APART = "A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'"  # a row is of one variable at most
ALIKE = "A AS kind = 'a', B AS v > 1, C AS v > 2"  # some rows are of several
_NO_END = "kind <> 'c'"
_PAIR = "A AS kind = 'a', B AS kind = 'b'"

AGREED = (
    Case("A B", _PAIR, "AB"),
    Case("A B C", APART),
    Case("A U C", "A AS kind = 'a', C AS kind = 'c'", "AUC"),
    Case("A X*? B", _PAIR, "AXB"),
    Case("A X*? B", _PAIR, "AXB", after="TO NEXT ROW"),
    Case("A X*? B", _PAIR, "AXB", after="TO LAST B"),
    Case("A X*? B", _PAIR, "AXB", within="2"),
    Case("A X+? B", _PAIR, "AXB"),
    Case("A X{1,2}? B", _PAIR, "AXB"),
    Case("A B* C", APART),
    Case("A B+ C", APART),
    Case("A B? C", APART),
    Case("A B{2} C", APART),
    Case("A B{1,2} C", APART),
    Case("A B{2,} C", APART),
    Case("A B*? C", APART),
    Case("A B+? C", APART),
    Case("A+ B", _PAIR, "AB"),
    Case("A+ B", _PAIR, "AB", after="TO NEXT ROW"),
    Case("A B+ C", APART, after="TO FIRST B"),
    Case("A B+ C", APART, after="TO LAST B"),
    Case("A B+?", _PAIR, "AB"),
    Case("A B", "A AS v > 0, B AS B.v > A.v", "AB"),
    Case("A X*? C", "A AS kind = 'a', C AS kind = 'c' AND C.v > A.v", "AXC"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c' AND COALESCE(SUM(B.v), 0) < 6, C AS kind = 'c'"),
    Case("A B*? C", ALIKE),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c' AND COUNT(B.id) <= 2, C AS kind = 'c'"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c', C AS kind = 'c' AND C.f >= AVG(B.f)"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c', C AS kind = 'c' AND C.v >= MAX(B.v)"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c', C AS kind = 'c' AND C.v > MIN(B.v)"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c' AND COALESCE(LAST(B.v, 1), 0) <= v, C AS kind = 'c'"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c' AND LAST(B.v, 1) <= v, C AS kind = 'c'"),
    Case("A B+ C", f"A AS kind = 'a', B AS {_NO_END} AND (LAST(B.v, 1) IS NULL OR v >= LAST(B.v, 1)), C AS kind = 'c'"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c' AND v >= LAST(v, 1), C AS kind = 'c'"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c' AND v >= FIRST(A.v), C AS kind = 'c'"),
    Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c', C AS kind = 'c' AND COUNT(B.id) >= 2 AND COUNT(B.v) < 3"),
    Case("A B", "A AS f > 0, B AS NOT (B.f > A.f)", "AB"),
    Case("A B+ C", APART, more=", COUNT(*) AS n, MIN(B.v) AS low, MAX(B.v) AS high, LAST(v) AS latest"),
)  # fmt: skip

# What the two say differently: Flink's `?` and greedy quantifiers never go back to try less, its sums of nothing are
# missing and its means of whole numbers are whole.
DIFFERENT = {
    "greedy, and rows are alike": Case("A B* C", ALIKE),
    "greedy from one on, and rows are alike": Case("A B+ C", ALIKE),
    "optional, and rows are alike": Case("A B? C", ALIKE),
    "the sum of nothing": Case("A B+ C", "A AS kind = 'a', B AS kind <> 'c', C AS kind = 'c' AND SUM(B.v) < 3"),
    "the mean of whole numbers": Case("A B+ C", f"A AS kind = 'a', B AS {_NO_END}, C AS kind = 'c' AND C.v = AVG(B.v)"),
    "a later match that is complete first": Case("A X*? C", "A AS kind = 'a', C AS kind = 'c' AND C.v > A.v", "AXC",
                                                 after="TO NEXT ROW"),
}  # fmt: skip

# What Flink takes without a word, and Headwater refuses.
TAKEN = {"an anchor": Case("^ A B", _PAIR, "AB")}

REFUSED = {
    "greedy at the end": Case("A B+", _PAIR, "AB"),
    "alternation": Case("A (B | C)", APART, "A"),
    "a group that is repeated": Case("(A B)+ C", APART, "A"),
    "PERMUTE": Case("PERMUTE(A, B)", _PAIR, "AB"),
    "exclusion": Case("A {- B -} C", APART, "A"),
    "PREV": Case("A B", "B AS B.v > PREV(B.v)", "AB"),
    "CLASSIFIER": Case("A B", _PAIR, "AB", more=", CLASSIFIER() AS c"),
    "MATCH_NUMBER": Case("A B", _PAIR, "AB", more=", MATCH_NUMBER() AS c"),
    "one variable twice": Case("A B A", _PAIR, "AB"),
    "an empty match": Case("A*?", "A AS kind = 'a'", "A"),
    "optional and reluctant": Case("A B?? C", APART),
    "COUNT(DISTINCT)": Case("A B", _PAIR, "AB", more=", COUNT(DISTINCT A.v) AS d"),
}

# By hand: kinds, values and times in seconds of a stream each. The first is one in which a match that begins later is
# complete earlier.
BY_HAND = (
    (("a", 10, 1), ("a", 1, 2), ("c", 5, 3), ("c", 20, 4), ("c", 30, 5)),
    (("a", 1, 0), ("b", 1, 5), ("a", 1, 10), ("b", 1, 14.999)),
    (("b", 1, 0), ("a", 1, 0), ("b", 1, 0), ("c", 1, 0)),
)


def rows() -> list[Row]:
    """All streams, in the order of their times; rows of one time and key are in the order of their numbers."""
    chance = random.Random(SEED)
    found = list[tuple[int, int, Row]]()
    for stream in range(STREAMS):
        time = 0
        for _ in range(chance.randint(3, LONGEST)):
            time += chance.choice((0, 500, 1000, 1000, 2000, 1999, 5000 if stream % 4 == 0 else 1000))
            kind = chance.choice("aabbcx")
            v = chance.choice((None, 0, 1, 2, 3, 4)) if stream % 2 else chance.randint(0, 4)
            f = chance.choice((None, 0.0, -0.0, 1.5, float("nan"), 2.5))
            key = None if stream == STREAMS - 1 else f"k{stream}"
            found.append((time, len(found), (0, key, kind, v, f, time)))
    for number, listed in enumerate(BY_HAND):
        for kind, v, seconds in listed:
            time = round(seconds * 1_000)
            found.append((time, len(found), (0, f"h{number}", kind, v, None, time)))
    return [(at, *row[1:]) for at, (_, _, row) in enumerate(sorted(found, key=lambda each: each[:2]))]


__all__ = ["AGREED", "CHANNEL", "COLUMNS", "DIFFERENT", "EVENT", "REFUSED", "TAKEN", "Case", "Row", "rows"]
