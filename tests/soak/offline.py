"""Mutated interests, write-ahead files and logs, in a process of its own: if one crashes it, it is known which.

Each is refused with an error of ours, or taken and then right.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from headwater import Event, Interest, State, i32, i64, u32
from headwater.errors import HeadwaterError, StoreError
from headwater.ir.cost import Limits
from headwater.ir.interp import EventContext, initial_state, run
from headwater.store.log import ChannelReader, wal
from headwater.store.log.layout import make_folders
from headwater.store.log.repair import repair
from headwater.store.log.verify import verify
from headwater.types import event_type
from tests.federation.hostile import mutated
from tests.federation.worker import serve
from tests.native.support import agree
from tests.soak.plan import chance
from tests.store.log.logs import CHANNEL, DAY0, Logged, keys, sighting
from tests.store.log.test_wal import rows, written

LIMITS = Limits(fuel=200)
META = EventContext(source="s", node="n", seq=7, time=1_700_000_000_000_000)


class Reading(Event, name="soak.Reading"):
    badge: u32
    marks: list[i64]
    level: float
    room: str | None = None
    zone: i32 | None = None


class Short(Event, name="soak.Short"):
    badge: u32
    tenth: i64
    room: str | None = None


def every_third(event: Reading, *, seen: State = State(n=0)) -> bool:
    seen.n += 1
    return seen.n % 3 == 0


SHORT = "{ output.badge = input.badge; output.tenth = (long) (input.level * 10.0); return input.badge % 2 == 0; }"
LOOP = "{ int i; int sum = 0; for (i = 0; i < 20; i = i + 1) { sum = sum + i * input.badge; } return sum > 100; }"
TYPE = event_type(Reading)
INTERESTS = [
    Interest("badge == :n", Reading, params={"n": 5}),
    Interest("badge in (1, 2, 3) or level between 0.5 and 2.5", Reading),
    Interest("room like 'G%' and zone is not null", Reading),
    Interest("lower(room) = 'g12' or coalesce(zone, 0) % 3 = 1", Reading),
    Interest("abs(level) * 2.0 > badge / 3.0 and not (zone < 0)", Reading),
    Interest("badge < 1000000 and (room is null or room != 'x')", Reading),
    Interest(SHORT, Reading, output=Short),
    Interest(LOOP, Reading),
    Interest(every_third, Reading),
]
EVENTS = [
    TYPE.to_raw(
        Reading(
            badge=n * 7,
            level=n / 4 - 1,
            room=None if n % 3 else "G12" * (n % 4),
            zone=None if n % 2 else n - 4,
            marks=[n] * (n % 3),
        )
    )
    for n in range(8)
]


class Tried(msgspec.Struct):
    """How many, how many of these were refused, and what should not be, with the number of the try."""

    tried: int = 0
    refused: int = 0
    problems: list[str] = []


def reshaped(form: Any, chance: random.Random) -> Any:
    """The nested lists with one part replaced, dropped or doubled."""
    if isinstance(form, list) and form and chance.randrange(10):
        at = chance.randrange(len(form))
        match chance.randrange(10):
            case 0:
                return form[:at] + form[at + 1 :]
            case 1:
                return form[: at + 1] + form[at:]
        return [*form[:at], reshaped(form[at], chance), *form[at + 1 :]]
    if chance.random() < 0.6:  # another one of its kind is more likely to be taken
        match form:
            case bool():
                return not form
            case int():
                return form + chance.choice((-1, 1, 2, 1 << 31))
            case float():
                return -form
            case str():
                return chance.choice(("badge", "level", "room", "zone", form.upper(), ""))
    return chance.choice((chance.randrange(-2, 40), None, True, 0.5, "x", b"x", [], {}, 2**63, -1, [2, [0]]))


def one_interest(chance: random.Random) -> bool:
    """Whether it was taken; it then does the same natively as by the interpreter."""
    good = chance.choice(INTERESTS)
    data = good.dumps(with_text=chance.random() < 0.3)
    if chance.random() < 0.6:
        form = msgspec.msgpack.decode(data)
        for _ in range(chance.randrange(1, 4)):
            form = reshaped(form, chance)
        data = msgspec.msgpack.encode(form)
    else:
        data = mutated(data, chance)
    try:
        interest = Interest.loads(data, good.params, limits=LIMITS)
        native = interest.native()
        events = [interest.type.to_raw(event) for event in EVENTS]
    except HeadwaterError:
        return False
    native.wait()
    state, program = initial_state(interest.program), interest.program
    for event in events:
        expected = run(program, event, meta=META, params=interest.params, state=state, fuel=LIMITS.fuel)
        result = native.run(interest.type.encode(event), META)
        got = result.status, result.faults, result.output
        same = agree(got, (expected.status, expected.faults, expected.output), interest.output)
        assert same, f"{interest} for {event}: expected {expected}, found {got}; {data.hex()}"
    return True


class Offline:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hw-soak-"))
        self._log: Logged | None = None
        self._wal = self.folder / "00000003.wal"
        self._written: Any = None
        self._copies = 0

    def close(self) -> Any:
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _each(self, seed: int, kind: str, count: int, one: Any) -> Tried:
        found = Tried()
        for number in range(count):
            found.tried += 1
            try:
                found.refused += not one(chance(seed, kind, number))
            except Exception as error:
                found.problems.append(f"{kind} {number}: {type(error).__name__}: {error}")
        return found

    def interests(self, seed: int, count: int) -> Any:
        return msgspec.to_builtins(self._each(seed, "interest", count, one_interest))

    def files(self, seed: int, count: int) -> Any:
        """Write-ahead files."""
        if self._written is None:
            self._written = written(self._wal)
        return msgspec.to_builtins(self._each(seed, "file", count, self._one_file))

    def _one_file(self, chance: random.Random) -> bool:
        """Whether all of it could be read; what could be was written before."""
        whole, states = self._written
        everything = states[-1][1]
        changed = mutated(whole, chance)
        self._wal.write_bytes(changed)
        try:
            segment = wal.read(self._wal)
        except StoreError:
            return False
        if segment.header is None:
            return False
        found = rows(segment)
        assert all(row in everything for row in found), f"{found} of {everything}; {changed.hex()}"
        return not segment.damage and segment.torn is None

    def logs(self, seed: int, count: int) -> Any:
        if self._log is None:
            self._log = made = Logged(self.folder / "whole")
            for node in ("a/1", "b"):  # ids that are the same each time, and so all bytes
                make_folders(made.folder.node(node).path)
                made.folder.node(node).id.write_text(f"{len(node):032}\n")
            for part in range(2):
                for node in ("a/1", "b"):
                    first = part * 40
                    times = [(i, DAY0 + (first + i) * 900_000_000) for i in range(1, 41)]
                    made.rest(node, [sighting(node, s, first + i, time) for s in "xy" for i, time in times], group=30)
            made.tail("b", [sighting("b", "x", i, DAY0 + i * 900_000_000) for i in range(81, 91)])
            made.tail("a/1", [sighting("a/1", "x", i, DAY0 + i) for i in range(81, 91)], batched=True)
        return msgspec.to_builtins(self._each(seed, "log", count, self._one_log))

    def _one_log(self, chance: random.Random) -> bool:
        """Whether it could be read; once repaired it can be, and nothing is in it that was not."""
        assert self._log is not None
        self._copies += 1  # a place of its own: readers remember files by their place, and what was in them
        root = self.folder / f"mutated-{self._copies}"
        shutil.copytree(self._log.root, root)
        try:
            return self._read_and_repaired(root, chance)
        finally:
            shutil.rmtree(root)

    def _read_and_repaired(self, root: Path, chance: random.Random) -> bool:
        assert self._log is not None
        files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
        for path in chance.sample(files, chance.choice((1, 1, 1, 2, 3))):
            path.write_bytes(mutated(path.read_bytes(), chance))
        good = True
        try:
            keys(ChannelReader(root, CHANNEL).merged())
        except HeadwaterError:
            good = False
        verify(root, CHANNEL)
        repair(root, CHANNEL)
        found = len(keys(ChannelReader(root, CHANNEL).merged()))
        assert found <= len(self._log.rows), f"{found} events of {len(self._log.rows)}"
        return good


if __name__ == "__main__":
    serve(Offline())
