"""A world of owners, a trigger's home and a network between them, in simulated time, and who sees everything.

The network loses, doubles, delays and overtakes; links are down for a while; owners and the home are killed and come
back with what they had persisted. Clocks differ by as much as is stated.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headwater.objects.zones.coordinator import Coordinator, CoordinatorState, Terms, When
from headwater.objects.zones.messages import Fired, FromOwner, Happening, Known, ToOwner, Unknown
from headwater.objects.zones.owner import Owner, OwnerState
from headwater.objects.zones.ranges import Value

BEAT = 50  # between two heartbeats of a link


@dataclass
class Weather:
    """How bad the luck is."""

    delay: int = 20  # at most, one way
    loss: float = 0.0
    double: float = 0.0
    split: float = 0.0  # at each heartbeat, that its link goes down
    crash: float = 0.0  # at each heartbeat, of an owner
    home_crash: float = 0.0
    error: int = 0
    down: int = 600  # at most, how long something is down


@dataclass
class Site:
    """An owner's node: its values and what it has persisted survive."""

    name: str
    offset: int
    values: tuple[Value, ...]
    owner: Owner | None
    saved: bytes
    up_at: int = 0
    linked_at: int = 0
    changes: list[tuple[int, int, tuple[Value, ...], bool]] = field(default_factory=list)  # stamp, real time, values


Step = Callable[[random.Random, tuple[Value, ...]], tuple[Value, ...]]


class World:
    """Runs one trigger until everything has been said, and holds what it said to what was true."""

    def __init__(
        self,
        seed: int,
        condition: Any,
        start: tuple[Value, ...],
        step: Step,
        weather: Weather,
        *,
        when: When = "becomes",
        zones: bool = True,
        pace: int = 10,
    ) -> None:
        self.random = random.Random(seed)
        self.weather, self.condition, self.step, self.when, self.pace = weather, condition, step, when, pace
        self.terms = Terms(lease=6 * BEAT, retry=3 * weather.delay, error=weather.error)
        self.options: dict[str, Any] = {"terms": self.terms, "when": when, "zones": zones}
        self.time = 1000
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.told: list[tuple[int, Happening]] = []
        self.quiet = False  # nothing bad happens any more
        self.sites: dict[str, Site] = {}
        for name, parts in condition.owners.items():
            offset = self.random.randint(-weather.error, weather.error)
            values = start[: len(parts)]
            owner = Owner(values, self.time + offset, error=weather.error, each=when == "each")
            site = Site(name, offset, values, owner, msgspec.msgpack.encode(owner.snapshot()))
            site.changes.append((self.time + offset, self.time, values, False))
            self.sites[name] = site
        self.time += 2 * weather.error + 1
        self.begin = self.time
        self.home: Coordinator | None = Coordinator(condition, self.time, **self.options)
        self.home_saved = b""
        self.home_up_at = 0
        self._home(lambda home: home.begin(self.time))

    # ── running ──

    def run(self, changes: int) -> None:
        """So many changes by all together, then calm until all is decided."""
        for _ in range(changes):
            self._at(self.random.randint(1, changes * self.pace), self._change)
        for site in self.sites.values():
            self._at(self.random.randint(1, BEAT), self._beater(site))
        self._at(1, self._tick)
        end = self.time + changes * self.pace
        self._until(end)
        self.quiet = True
        self._until(end + 2 * self.weather.down + 20 * BEAT + 20 * self.weather.delay)
        assert self.home is not None
        assert self.home.unknown_since is None
        assert self.home.decided >= end - self.weather.error

    def _until(self, end: int) -> None:
        while self.agenda and self.agenda[0][0] <= end:
            self.time, _, do = heapq.heappop(self.agenda)
            do()
        self.time = end

    def _at(self, delay: int, do: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.time + delay, self.random.getrandbits(60), do))

    def _chance(self, share: float) -> bool:
        return not self.quiet and self.random.random() < share

    # ── owners ──

    def _change(self) -> None:
        site = self.random.choice(list(self.sites.values()))
        if site.owner is None:
            return
        site.values = self.step(self.random, site.values)
        event = self.random.random() < 0.8
        before = site.owner.stamp
        messages = site.owner.changed(site.values, self.time + site.offset, event=event)
        if site.owner.stamp > before:
            site.changes.append((site.owner.stamp, self.time, site.values, event))
        if messages:
            self._save(site, messages)

    def _save(self, site: Site, messages: list[FromOwner]) -> None:
        assert site.owner is not None
        site.saved = msgspec.msgpack.encode(site.owner.snapshot())
        for message in messages:
            self._to_home(site, message)

    def _beater(self, site: Site) -> Callable[[], None]:
        def beat() -> None:
            self._at(BEAT, beat)
            if site.owner is None:
                if self.time >= site.up_at:
                    state = msgspec.msgpack.decode(site.saved, type=OwnerState)
                    now = self.time + site.offset
                    site.owner = Owner.restore(
                        state, site.values, now, error=self.weather.error, each=self.when == "each"
                    )
                    site.saved = msgspec.msgpack.encode(site.owner.snapshot())
            elif self._chance(self.weather.crash):
                site.owner, site.up_at = None, self.time + self.random.randint(1, self.weather.down)
            else:
                if self._chance(self.weather.split):
                    site.linked_at = self.time + self.random.randint(1, self.weather.down)
                self._to_home(site, site.owner.alive(self.time + site.offset))

        return beat

    # ── the home ──

    def _home(self, do: Callable[[Coordinator], Any]) -> None:
        if self.home is None:
            return
        effects = do(self.home)
        if effects.messages or effects.happenings:
            self.home_saved = msgspec.msgpack.encode(self.home.snapshot())
        self.told += ((self.time, happening) for happening in effects.happenings)
        for name, message in effects.messages:
            self._to_owner(self.sites[name], message)

    def _tick(self) -> None:
        self._at(BEAT // 2, self._tick)
        if self.home is None:
            if self.time >= self.home_up_at:
                state = msgspec.msgpack.decode(self.home_saved, type=CoordinatorState)
                self.home_up_at = self.time
                self.home = Coordinator.restore(self.condition, state, self.time, **self.options)
                self._home(lambda home: home.begin(self.time))
        elif self._chance(self.weather.home_crash):
            self.home, self.home_up_at = None, self.time + self.random.randint(1, self.weather.down)
        else:
            self._home(lambda home: home.tick(self.time))
            self._declared_in_time()

    def _declared_in_time(self) -> None:
        home = self.home
        assert home is not None
        patience = self.terms.lease + 3 * BEAT + 4 * self.weather.delay + 4 * self.weather.error
        if self.weather.loss:
            patience += self.terms.lease  # of what is lost, the next ones tell
        undecided_since = max(home.decided, self.home_up_at)
        assert home.unknown_since is not None or self.time - undecided_since <= patience

    # ── the network ──

    def _carry(self, site: Site, deliver: Callable[[], None]) -> None:
        for _ in range(1 + self._chance(self.weather.double)):
            if self.time >= site.linked_at and not self._chance(self.weather.loss):
                self._at(self.random.randint(1, self.weather.delay), deliver)

    def _to_home(self, site: Site, message: FromOwner) -> None:
        sent = msgspec.msgpack.encode(message)

        def deliver() -> None:
            got = msgspec.msgpack.decode(sent, type=FromOwner)
            self._home(lambda home: home.received(site.name, got, self.time))

        self._carry(site, deliver)

    def _to_owner(self, site: Site, message: ToOwner) -> None:
        sent = msgspec.msgpack.encode(message)

        def deliver() -> None:
            if site.owner is not None:
                got = msgspec.msgpack.decode(sent, type=ToOwner)
                self._save(site, site.owner.received(got, self.time + site.offset))

        self._carry(site, deliver)

    # ── who sees everything ──

    def truth(self) -> list[tuple[int, int, bool, bool]]:
        """At every stamp: when it was (all that it depends on had happened), whether it holds, whether it was an
        event."""
        stamped: dict[int, list[tuple[str, int, tuple[Value, ...], bool]]] = {}
        for site in self.sites.values():
            for stamp, real, values, event in site.changes:
                stamped.setdefault(stamp, []).append((site.name, real, values, event))
        row: dict[str, tuple[Value, ...]] = {}
        seen, latest = [], 0
        for stamp in sorted(stamped):
            for name, real, values, _ in stamped[stamp]:
                row[name], latest = values, max(latest, real)
            if len(row) == len(self.sites):
                flat = tuple(value for name in self.sites for value in row[name])
                seen.append((stamp, latest, self.condition.holds(flat), any(one[3] for one in stamped[stamp])))
        return seen

    def check(self, *, prompt: bool = False) -> tuple[int, int]:
        """Hold what was told to what was true; how often it fired, and how much time is unknown."""
        unknown = [(k.unknown_since, k.since) for _, k in self.told if isinstance(k, Known)]
        fired = {f.time: (at, f) for at, f in self.told if isinstance(f, Fired)}
        assert len(fired) == sum(isinstance(f, Fired) for _, f in self.told), "fired twice"
        truth = self.truth()

        def holds_at(time: int) -> bool:
            return next(holds for stamp, _, holds, _ in reversed(truth) if stamp <= time)

        def is_unknown(time: int) -> bool:
            return time <= self.begin or any(since <= time < until for since, until in unknown)

        due, before = {}, False
        for stamp, real, holds, event in truth:
            if holds and (event if self.when == "each" else not before):
                due[stamp] = real
            before = holds
        for time, real in due.items():
            if is_unknown(time):
                continue
            assert time in fired, f"missed {time}; unknown: {unknown}"
            if prompt and not fired[time][1].late:
                assert fired[time][0] <= real + 3 * self.weather.delay, f"{time} came late"
        for time, (_, firing) in fired.items():
            if firing.earliest == time:
                assert time in due, f"false at {time}"
            else:
                assert any(firing.earliest <= at <= time for at in due), f"false between {firing.earliest} and {time}"
            assert firing.error == self.terms.error
        for _, known in self.told:
            if isinstance(known, Known):
                assert known.holds == holds_at(known.since)
        lasting = sum(until - since for since, until in unknown if since > self.begin + 1)
        assert all(isinstance(h, Fired | Known | Unknown) for _, h in self.told)
        return len(fired), lasting
