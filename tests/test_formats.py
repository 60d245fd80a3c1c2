"""The page on compatibility has the numbers of the formats and the Pythons as the code has them; another is refused."""

from __future__ import annotations

import re
import sqlite3
import struct
import tomllib
from pathlib import Path

import pytest

from headwater import formats, python_versions
from headwater.errors import DecodeError, SerialError, StoreError
from headwater.federation.multicast import datagram
from headwater.federation.security import envelope, session
from headwater.interest import Interest
from headwater.ir import serial
from headwater.spark.live.offsets import Offset
from headwater.spark.live.packing import package, unpack
from headwater.store.log import wal
from headwater.store.state import NodeState
from headwater.types import Event, event_type

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


class Level(Event):
    level: float


def test_the_page_has_the_numbers_of_all_formats() -> None:
    told = {name: int(number) for number, name in re.findall(r"^\| [^|]+ \| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)}
    assert told == {name: value for name, value in vars(formats).items() if name.isupper()}


def test_what_is_written_begins_with_its_number() -> None:
    assert envelope.MAGIC == b"HWE2" and session.BOX == b"HWB1" and wal.MAGIC == b"HWWAL\r\n\x01"
    assert datagram.VERSION == formats.DATAGRAM
    assert struct.unpack_from("<H", event_type(Level).encode(Level(0.5)), 6) == (formats.RECORD,)


def test_the_page_and_the_package_name_the_same_pythons() -> None:
    verified = [f"{major}.{minor}" for major, minor in python_versions.VERIFIED]
    assert re.findall(r"^\| CPython ([\d.]+) \| machine code \|", PAGE, re.MULTILINE) == verified
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in project["classifiers"]]
    assert [each[1] for each in classified if each] == verified
    assert project["requires-python"] == f">={verified[0]}"


def test_another_number_is_refused_by_name() -> None:
    kind = event_type(Level)
    record = bytearray(kind.encode(Level(0.5)))
    record[6] += 1
    with pytest.raises(DecodeError, match="expected layout version 1, found 2"):
        kind.decode(bytes(record))
    form = bytearray(serial.dumps(Interest("level > 0.5", Level).program))
    assert form[1] == formats.INTEREST
    form[1] += 1
    with pytest.raises(SerialError, match="expected version 1, found 2"):
        serial.loads(bytes(form))
    with pytest.raises(StoreError, match=r"version 1, found .*'version': 2"):
        Offset.from_json({"version": 2, "seqs": {}})


# A package in an offset of number 1, whose map {"a": 1, "b": 2} is written as pairs.
PAIRS = (
    "eJybfGTyTMaJk5mXupal5pVMmbw0J7UsNYfr0OTleakl5flF2dyHJi8uSUznOTR5aXFuYk4OyyGFAxOnLCxg4maZMHESx2QuhklT+CcxTWScwDCF"
    "k2WyAAOIPZmBhXFZQWVJRn7eTeOcxNyklESFVB0FLR2FAiuFVD2o0QqZeQoFCol5KQoF0XDBWAU7BcPGhQWTJi1MZJy0MInpHANj2wIAwn8+7Q=="
)


def test_packages_with_maps_as_pairs_are_read_as_those_with_maps() -> None:
    old = unpack(PAIRS)
    assert old.params == {"p": {"a": 1, "b": 2}}
    assert unpack(package(old)).params == old.params


def test_the_state_of_a_newer_release_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    NodeState(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {formats.STATE + 1}")
    connection.close()
    with pytest.raises(StoreError, match=f"expected version {formats.STATE} or older, found {formats.STATE + 1}"):
        NodeState(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (formats.STATE + 1,)
    connection.close()
