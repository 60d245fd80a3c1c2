"""A recording played through a real federation: a node for each recorded one, in processes, and sinks that count.

What crosses is measured, not computed: frames and bytes of the links, and messages between the nodes, as they count
them themselves.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, perf_counter
from typing import IO, Any, Protocol

from headwater.channel.options.config import Queue
from headwater.errors import FederationError
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.study.report.data import Link, Run
from headwater.threads import Supervised
from headwater.types import EventType

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100  # characters of a node's name
READY = 60.0  # seconds for all nodes to find each other and take up the interests
PREPARING = "of joining nodes and moving interests"  # what happens in a run before the first event
PROCESSES = 16  # more recorded nodes than that share processes
QUEUE = Queue(limit=1 << 20)
CRASH = "Fatal Python error"  # so `faulthandler` begins
LAST_WORDS = 4000  # characters


class Subscribed(Protocol):
    """A subscription as it is asked for. A transformation, or a notation that is not plain, comes as an `Interest`."""

    @property
    def name(self) -> str: ...
    @property
    def at(self) -> str: ...
    @property
    def where(self) -> Any: ...
    @property
    def params(self) -> Mapping[str, Any] | None: ...


class _Process:
    """A player of these nodes."""

    def __init__(self, nodes: Sequence[str], errors: Path) -> None:
        self._nodes, self._errors = ", ".join(map(repr, nodes)), errors
        with errors.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.study.player"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
            )

    def ask(self, do: str, **what: Any) -> None:
        pipe: IO[bytes] | None = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps({"do": do, **what}).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise self._died() from None

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        answer = json.loads(line)
        if "error" in answer:
            raise FederationError(f"the process that plays {self._nodes}: {answer['error']}")
        return answer["ok"]

    def _died(self) -> FederationError:
        return FederationError(
            f"the process that plays {self._nodes} {_how(self._process.wait())}; it said: "
            f"{_last_words(self._errors.read_text(errors='replace')) or 'nothing'}"
        )

    def end(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _how(code: int) -> str:
    """How a process has ended."""
    if code >= 0:
        return f"has ended with {code}"
    names = {each.value: each.name for each in signal.Signals}  # not of all: those for real time have numbers only
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _last_words(said: str) -> str:
    """The end of what it said; after a crash, where its threads were, beginning with the one that crashed."""
    crash = said.rfind(CRASH)
    return said[crash:][:LAST_WORDS] if crash >= 0 else said[-LAST_WORDS:]


class Stage:
    """The processes, ready to play the same recording again and again. Made by `stage`."""

    def __init__(
        self, processes: list[_Process], channel: str, type: EventType | None, names: Mapping[str, str]
    ) -> None:
        self._processes, self._channel, self._type = processes, channel, type
        self.names = names  # what each recorded node is called in the federation
        self._runs = 0
        self.started = 0.0  # seconds that it took

    def _all(self, do: str, **what: Any) -> list[Any]:
        for process in self._processes:
            process.ask(do, **what)
        return [process.answer() for process in self._processes]

    def run(
        self,
        name: str,
        subscriptions: Sequence[Subscribed],
        *,
        title: str = "",
        log: Path | None = None,
        speed: float | None = None,
        filtered: bool = True,
        begun: Callable[[], object] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Run:
        """Play it once to these subscriptions; `begun` is called when all interests are at the sources and the first
        event is about to be published, `progress` from then on, now and then, with the deliveries so far.

        Sinks at a recorded node are on a node of their own beside it, so what they get crosses too.
        Without `filtered`, interests stay with the sinks: everything crosses, and is judged on arrival."""
        self._runs += 1
        federation = f"study-{os.getpid()}-{self._runs}"
        counts = [0] * len(subscriptions)
        sinks: dict[str, Node] = {}
        try:
            began = perf_counter()
            endpoints: tuple[str, ...] = ()
            for at, called in live_names((each.at for each in subscriptions), taken=self.names.values()).items():
                network = Network(
                    listen=("tcp/127.0.0.1:0",),
                    connect=endpoints[:1],
                    federation=federation,
                    placement="source" if filtered else "destination",
                )
                sinks[at] = node = Node(called, network=network)
                endpoints = endpoints or node.endpoints
            made = {}
            for index, each in enumerate(subscriptions):
                channel = sinks[each.at].channel(self._channel, self._type or bytes)
                made[each.name] = channel.subscribe(
                    _counter(counts, index), each.where, params=each.params, name=each.name, queue=QUEUE
                )
            nodes = self._all(
                "open", federation=federation, endpoint=endpoints[0], log=None if log is None else str(log)
            )
            wanted = sum(map(len, nodes)) + len(sinks) - 1
            sources = sum(count for some in nodes for count in some.values())
            for node in sinks.values():
                if not (node.until(_all_there(node, wanted, self._channel, sources), READY) and node.ready(READY)):
                    raise FederationError(
                        f"study: expected {wanted} other nodes with {sources} sources, all with the interests, found "
                        f"{len(node.peers)} with {len(node.remote_sources(self._channel))} after {READY:.0f} s: "
                        f"{', '.join(node.peers)}"
                    )
            ready = perf_counter() - began
            firsts = [] if speed is None else [first for first in self._all("first") if first is not None]
            if begun is not None:
                begun()
            began = perf_counter()
            with _told(progress, counts):
                self._all("play", speed=speed, begin=min(firsts, default=None))
            seconds = perf_counter() - began
            told = [each for some in self._all("told") for each in some]
            where = {
                each.name: ", ".join(
                    sorted({f"{found.where}" for found in sinks[each.at].remote_counts(made[each.name])})
                )
                for each in subscriptions
            }
            reports = [node.federation_report() for node in sinks.values()]
            said = sum(kind.get("messages_out", 0) for report in reports for kind in report.messages.values())
            said_bytes = sum(kind.get("bytes_out", 0) for report in reports for kind in report.messages.values())
        finally:
            with suppress(FederationError):
                self._all("close")
            for node in sinks.values():
                node.close(drain=False)
        return Run(
            name=name,
            title=title or name,
            delivered={each.name: count for each, count in zip(subscriptions, counts, strict=True)},
            links=tuple(_traffic(each) for each in told),
            said=said + sum(each["said"] for each in told),
            said_bytes=said_bytes + sum(each["said_bytes"] for each in told),
            seconds=seconds,
            ready=ready,
            filtered=filtered,
            where=where,
        )


def _all_there(node: Node, wanted: int, channel: str, sources: int) -> Callable[[], bool]:
    """Interests go to sources that are known, so all of them have to be."""
    return lambda: len(node.peers) >= wanted and len(node.remote_sources(channel)) >= sources


def _traffic(told: Mapping[str, Any]) -> Link:
    return Link(
        node=told["node"],
        sources=told["sources"],
        published=told["published"],
        crossed=told["crossed"],
        frames=told["frames"],
        bytes=told["bytes_out"],
        back_frames=told["answers"],
        back_bytes=told["bytes_in"],
    )


def _counter(counts: list[int], index: int) -> Callable[[Any], None]:
    def count(event: Any) -> None:
        counts[index] += 1

    return count


@contextmanager
def _told(progress: Callable[[int], object] | None, counts: list[int]) -> Iterator[None]:
    """Tell how far it is while something runs."""
    if progress is None:
        yield
        return
    over = threading.Event()

    def tell() -> None:
        while not over.wait(0.1):
            progress(sum(counts))

    thread = Supervised(tell, "headwater study progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        progress(sum(counts))


def live_names(names: Iterable[str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """What nodes are called in a federation, where names have ASCII letters, digits, `.`, `_` and `-` only: each name
    as it is where it can be, else something like it that no other has."""
    used = set(taken)
    found: dict[str, str] = {}
    wanted = list(dict.fromkeys(names))
    for name in sorted(wanted, key=lambda name: _plain(name) != name):  # those that can stay as they are come first
        plain, number = _plain(name), 1
        while (made := plain if number == 1 else f"{plain}.{number}") in used:
            number += 1
        used.add(made)
        found[name] = made
    return {name: found[name] for name in wanted}


def _plain(name: str) -> str:
    return _ODD.sub(".", name).strip(".")[:_LONGEST] or "node"


@contextmanager
def stage(
    recording: Path,
    channel: str,
    nodes: Iterable[str],
    type: EventType | None,
    *,
    facts: Mapping[str, Mapping[str, Any]],
) -> Iterator[Stage]:
    """Processes that hold a recording's nodes, a process for each as far as that is sensible; they end with the block.

    `type` is what all events of the recording have (`channel.replay.common_type`), None for bytes. `facts` are what
    each node's sources state of their events."""
    called = live_names(nodes)
    names = list(called)
    started = monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-study-") as scratch:
        processes: list[_Process] = []
        try:
            shares = [names[at::PROCESSES] for at in range(min(PROCESSES, len(names)))]
            for index, share in enumerate(shares):
                processes.append(_Process(share, Path(scratch) / f"player-{index}.log"))
            for process, share in zip(processes, shares, strict=True):
                known = {name: dict(facts[name]) for name in share if name in facts}
                here = {name: called[name] for name in share}
                process.ask("load", recording=str(recording), channel=channel, nodes=here, facts=known)
            for process in processes:
                process.answer()
            made = Stage(processes, channel, type, called)
            made.started = monotonic() - started
            yield made
        finally:
            for process in processes:
                process.end()
