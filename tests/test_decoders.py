"""Decoders of messages are made by one thread at a time: msgspec shows others types that it is not done with."""

from __future__ import annotations

import ast
from pathlib import Path

import headwater
import headwater_studies
from tests.base import run

SOURCES = [Path(package.__file__).parent for package in (headwater, headwater_studies)]


def test_threads_may_be_the_first_to_have_an_answer_of_one_type() -> None:
    program = """
    import json, sys, threading, time
    from headwater.federation.wire.requests import ChannelAd, State, pack, reply

    answer = pack(State("lab", 1, 1, [], bytes(32), [], []))
    inside, found = threading.Event(), []

    def second():
        inside.wait()
        found.append(reply(answer, State).node)

    def halfway(frame, event, what):
        # A type of the answer is known, those of its parts are not: another thread has its turn now, until it is done
        # or waits for this one.
        if event != "call" or frame.f_code.co_name != "get_class_annotations" or frame.f_locals["obj"] is not ChannelAd:
            return
        sys.setprofile(None)
        inside.set()
        while other.is_alive() and not waits(sys._current_frames().get(other.ident)):
            time.sleep(0.001)

    def waits(frame):
        return frame is not None and frame.f_code.co_filename.endswith("decoders.py")

    other = threading.Thread(target=second, daemon=True)
    other.start()
    sys.setprofile(halfway)
    found.append(reply(answer, State).node)
    other.join(60)
    print(json.dumps([found, inside.is_set()]))
    """
    assert run(program) == [["lab", "lab"], True]


def test_decoders_are_made_in_one_place() -> None:
    found = set()
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "msgspec" in text:
                found |= {path.relative_to(folder).as_posix() for node in ast.walk(ast.parse(text)) if _makes_one(node)}
    assert found == {"decoders.py"}, "take decoders from headwater.decoders: two threads may be the first"


def _makes_one(node: ast.AST) -> bool:
    """Whether msgspec is asked for a decoder, or for anything else that it needs the types of fields for."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    typed = any(keyword.arg == "type" for keyword in node.keywords)
    return called.endswith(("json.Decoder", "msgpack.Decoder", "msgspec.convert")) or (
        typed and called.endswith(("json.decode", "msgpack.decode", "toml.decode", "yaml.decode"))
    )
