"""How wide texts are on a terminal, and tables of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.text_tables import table
from headwater.text_width import beginning, columns


def test_what_characters_take() -> None:
    assert columns("plain") == 5
    assert columns("températures") == 12 and columns("te\u0301") == 2  # é, and e with a mark
    assert columns("温度") == 4 and columns("ﾃｽﾄ") == 3 and columns("🔥 hot") == 6


@given(st.text(max_size=20), st.integers(0, 12))
def test_a_beginning_fills_its_room(text: str, room: int) -> None:
    found = beginning(text, room)
    assert columns(found) == room
    assert text.startswith(found.rstrip(" ")) or not found.strip()


def test_columns_of_a_table_stand_below_each_other() -> None:
    head, *rows = table(("name", "n"), [("温度", 1), ("plain", 22), ("", None)])
    assert len({columns(line) for line in (head, *rows) if "1" in line or "2" in line}) == 1
