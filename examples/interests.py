"""Interests: three notations, parameters, state, transformations, covering, and moving one to another process.

Run it: `python examples/interests.py`.
"""

from __future__ import annotations

import headwater as hw
from headwater import Event, Interest, State, f64


class Reading(Event):
    sensor: str
    value: f64
    limit: f64 | None


# A filter in predicate text, with parameters that can change while it runs.
watched = Interest("sensor in :sensors and value > :least", Reading, params={"sensors": {"a", "b"}, "least": 10.0})
running = watched.native()
record = watched.type.encode(Reading(sensor="a", value=12.0, limit=None))
print("a at 12 passes:", running.test(record))
running.set_params(least=20.0)
print("after least=20:", running.test(record))


# State lives with the interest at one source: send a value only when it changed enough since the last one sent.
def changed(e: Reading, *, by: float = 1.0, state: State = State(last=-1e9)) -> bool:
    if abs(e.value - state.last) > by:
        state.last = e.value
        return True
    return False


deadband = Interest(changed, Reading).native()
values = [5.0, 5.4, 6.2, 6.9, 7.3]
sent = [v for v in values if deadband.test(watched.type.encode(Reading(sensor="a", value=v, limit=None)))]
print(f"of {values} only {sent} are sent")


# A transformation computes another event at the source.
class Excess(Event):
    sensor: str
    ratio: f64


over = Interest(
    """{
        output.sensor = input.sensor;
        output.ratio = input.value / input.limit;
        return input.value > input.limit;
    }""",
    Reading,
    output=Excess,
)
result = over.native().run(over.type.encode(Reading(sensor="a", value=3.0, limit=2.0)))
print("derived event:", over.output.decode(result.output))

# What cannot be computed is missing; such an event is undecided, and counted, never an exception.
print("without a limit:", over.interpret(Reading(sensor="a", value=3.0, limit=None)).status.name.lower())

# Everything wrong with an interest is said at once, with its place.
try:
    Interest("sensr = 'a' and value > 'high' and speed(value) > 1", Reading)
except hw.errors.InterestError as error:
    print(f"\n{error}\n")

# What is allowed and hardly meant is a warning: nobody's value is both. `subscribe` issues these as HeadwaterWarning.
print(*Interest("value > 5 and sensor = 'a' and sensor = 'b'", Reading).warnings, sep="\n", end="\n\n")

# An endless loop never gets as far as a source.
try:
    Interest("{ while (1) { } }", Reading)
except hw.errors.InterestRefused as error:
    print(f"{error}\n")

# One filter may cover another: what the narrow one passes, the wide one passes too.
wide, narrow = Interest("value > 3", Reading), Interest("value > 5 and sensor = 'a'", Reading)
print("wide covers narrow:", wide.covers(narrow), "- narrow covers wide:", narrow.covers(wide))

# What travels between nodes is the checked program, never Python code.
moved = Interest.loads(watched.dumps(), {"sensors": {"a"}, "least": 1.0})
print(f"{len(watched.dumps())} bytes travel; same fingerprint there: {moved.fingerprint == watched.fingerprint}")
