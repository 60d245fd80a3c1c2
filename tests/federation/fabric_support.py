"""Fabrics that remember what happened to them, here and in processes of their own.

As a program this is a node that can be frozen and killed: it reads one command per line and answers each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.federation.fabric.fabric import Fabric
from tests.federation.nursery import Popen

PATIENCE = 120.0  # seconds until a test gives up, against hanging: nothing here takes that long, also under load
ROOT = Path(__file__).parents[2]


class Witness:
    """What happened, in order; tests wait until it shows what they expect."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._change = threading.Condition()

    def saw(self, what: Any) -> None:
        with self._change:
            self.seen.append(what)
            self._change.notify_all()

    def until(self, test: Callable[[list[Any]], bool], what: str = "") -> None:
        with self._change:
            assert self._change.wait_for(lambda: test(self.seen), PATIENCE), f"{what}: only {self.seen[-20:]}"

    def until_saw(self, *what: Any) -> None:
        self.until(lambda seen: all(one in seen for one in what), f"expected {what}")

    def clear(self) -> None:
        with self._change:
            self.seen.clear()


def fabric(
    name: str, incarnation: int = 1, *, federation: str = "test", before: Callable[[Fabric], None] = bool, **kwargs: Any
) -> tuple[Fabric, Witness]:
    """An open fabric whose answers name it: "name:question"."""
    made = Fabric(federation, name, incarnation, **kwargs)
    witness = Witness()
    made.on_join = lambda node, incarnation: witness.saw(("join", node, incarnation))
    made.on_leave = lambda node, incarnation: witness.saw(("leave", node, incarnation))
    made.on_news = lambda payload: witness.saw(("news", payload))
    made.on_post = lambda payload: witness.saw(("post", payload))
    made.on_ask = lambda payload: name.encode() + b":" + payload
    made.on_roll = lambda payload: name.encode() + b":" + payload
    before(made)
    made.open()
    return made, witness


@contextmanager
def closing(*fabrics: Fabric) -> Iterator[None]:
    try:
        yield
    finally:
        for one in fabrics:
            one.close()


class Child:
    """A node in a process of its own."""

    def __init__(self, name: str, incarnation: int = 1, **kwargs: Any) -> None:
        self.name = name
        self.process = Popen(
            [sys.executable, "-m", "tests.federation.fabric_support", name, str(incarnation), json.dumps(kwargs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.endpoints: list[str] = json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, f"{self.name} ended: {self.process.stderr.read()}"
        return line

    def do(self, *command: Any) -> Any:
        """Have the node do something; what it gives back, or the name of the error it raised."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)  # it may still run when the signal is sent

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def end(self) -> str:
        """End properly; what it wrote to standard error."""
        if self.process.poll() is None:
            self.thaw()
            assert self.process.stdin is not None
            self.process.stdin.close()
        return self._reap()

    def _reap(self) -> str:
        with self.process:
            assert self.process.stderr is not None
            self.process.wait(PATIENCE)
            return self.process.stderr.read()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self._reap()


def main(name: str, incarnation: str, kwargs: str) -> None:
    node, witness = fabric(name, int(incarnation), **json.loads(kwargs))
    print(json.dumps(node.endpoints), flush=True)
    for line in sys.stdin:
        result: Any
        try:
            match json.loads(line):
                case ["ask", str(other), str(question)]:
                    result = node.ask(other, question.encode(), 5.0).decode()
                case ["post", str(other), str(text)]:
                    result = node.post(other, text.encode())
                case ["tell", str(text)]:
                    result = node.tell(text.encode())
                case ["roll", str(question)]:
                    result = sorted(answer.decode() for answer in node.roll_call(question.encode(), 5.0))
                case ["until", *expected]:
                    want = [
                        tuple(part.encode() if kind in ("post", "news") else part for part in rest)
                        for kind, *rest in expected
                    ]
                    kinds = [one[0] for one in expected]
                    witness.until_saw(*((kind, *rest) for kind, rest in zip(kinds, want, strict=True)))
                    result = True
                case ["clear"]:
                    result = witness.clear()
                case other:
                    result = f"unknown command {other}"
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        print(json.dumps(result), flush=True)
    node.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
