"""Programs as text for people."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from headwater.ir.analyse import analyse
from headwater.ir.show import show
from tests import programs
from tests.effort import examples
from tests.ir.test_analyse import averaging

AVERAGING = """\
transformation of Grid to Mean
local i: i32
local j: i32
local sum: f64
{
  sum = 0.0
  i = 0 as i32
  while i < 37 (at most 37) {
    j = 0 as i32
    while j < 253 (at most 253) {
      sum = sum + input.level[j][i]
    } step {
      j = (j + 1) as i32
    }
  } step {
    i = (i + 1) as i32
  }
  output.average = sum / ((37 * 253) as f64)
  return 1 as bool
}"""


def test_the_averaging_program() -> None:
    assert show(analyse(averaging()).program) == AVERAGING


@settings(max_examples=examples(60), deadline=None)
@given(programs.cases(transforming=True, events=1))
def test_any_program_can_be_shown(drawn: Any) -> None:
    text = show(drawn[0].program)
    assert text.isprintable() or "\n" in text
