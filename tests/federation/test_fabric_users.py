"""Nodes with user and password find each other: of two, exactly one dials, and it is the one that can."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.federation.fabric.fabric import Fabric
from headwater.federation.fabric.settings import check, matchmaker_config, session_config
from tests.federation.fabric_support import Child, Witness, closing, fabric
from tests.ports import free_endpoint

LOOP = ["tcp/127.0.0.1:0"]


@pytest.fixture
def users(tmp_path: Path) -> dict[str, Any]:
    """Zenoh's settings of a node that is a user, and knows the users."""
    (tmp_path / "users").write_text("ann:correct horse\n")
    return {
        "transport/auth/usrpwd": {
            "user": "ann",
            "password": "correct horse",
            "dictionary_file": str(tmp_path / "users"),
        }
    }


@pytest.mark.parametrize("_", range(4))  # each had about two chances in five to part two of them for good
def test_nodes_that_join_at_once_all_meet(users: dict[str, Any], _: int) -> None:
    seed, seen_seed = fabric("seed", listen=LOOP, settings=users)
    joined: list[tuple[Fabric, Witness]] = []
    together = threading.Barrier(13)

    def join(name: str) -> None:
        together.wait()
        joined.append(fabric(name, connect=seed.endpoints, settings=users))

    threads = [threading.Thread(target=join, args=(f"n{number}",)) for number in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(seed, *(one for one, _ in joined)):
        names = {"seed", *(one.node for one, _ in joined)}
        assert len(names) == 1 + together.parties
        for one, seen in ((seed, seen_seed), *joined):
            seen.until_saw(*(("join", name, 1) for name in names - {one.node}))


def test_nodes_that_nobody_can_reach_dial_those_that_were_told_where_to_listen(users: dict[str, Any]) -> None:
    seed, _ = fabric("seed", listen=[free_endpoint()], settings=users)
    told, seen_told = fabric("told", listen=[free_endpoint()], connect=seed.endpoints, settings=users)
    nowhere = {**users, "listen/endpoints": []}
    hidden = [fabric(f"hidden{number}", connect=seed.endpoints, settings=nowhere) for number in range(6)]
    with closing(seed, told, *(one for one, _ in hidden)):
        for one, seen in hidden:
            seen.until_saw(("join", "seed", 1), ("join", "told", 1))
            seen_told.until_saw(("join", one.node, 1))
            assert one.ask("told", b"x", 5.0) == b"told:x"


def test_nodes_without_their_seed_find_each_other_again(users: dict[str, Any]) -> None:
    with Child("a", listen=LOOP, lease=1.0, settings=users) as a:
        b, seen_b = fabric("b", connect=a.endpoints, lease=1.0, settings=users)
        with closing(b), Child("c", connect=a.endpoints, lease=1.0, settings=users) as c:
            seen_b.until_saw(("join", "a", 1), ("join", "c", 1))
            a.kill()
            c.freeze()
            seen_b.until_saw(("leave", "a", 1), ("leave", "c", 1))
            seen_b.clear()
            c.thaw()
            seen_b.until_saw(("join", "c", 1))
            assert b.ask("c", b"x", 5.0) == b"c:x"


def test_nodes_that_all_know_each_other_beforehand_meet(users: dict[str, Any]) -> None:
    endpoints = [free_endpoint() for _ in range(3)]
    made = [
        fabric(f"n{number}", listen=[mine], connect=[each for each in endpoints if each != mine], settings=users)
        for number, mine in enumerate(endpoints)
    ]
    with closing(*(one for one, _ in made)):
        for one, seen in made:
            seen.until_saw(*(("join", other.node, 1) for other, _ in made if other is not one))


def config(*listen: str, mode: str = "peer", **settings: Any) -> dict[str, Any]:
    connect = ["tcp/10.0.0.1:7447"]
    wiring = check("f", "n", listen=listen, connect=connect, scout=False, mode=mode, lease=5.0, settings=settings)
    return session_config(wiring, wiring.listen)


def test_who_dials(users: dict[str, Any]) -> None:
    told = [config(each, **users) for each in ("tcp/127.0.0.1:7447", "unix//tmp/socket", "tcp/0.0.0.0:7447")]
    free = [config(**users), config("tcp/127.0.0.1:0", **users)]
    for each in (*told, *free):
        assert each["scouting"]["gossip"]["autoconnect_strategy"] == {
            "peer": {"to_router": "always", "to_peer": "greater-zid"}
        }
    lesser, greater = ([bytes.fromhex(each["id"]) for each in some] for some in (told, free))
    assert max(lesser) < min(greater)  # the greater one dials
    assert max(each[::-1] for each in lesser) < min(each[::-1] for each in greater)  # in whichever order bytes count
    assert len({*lesser, *greater}) == 5
    assert all(len(each) == 16 and each[0] >= 0x10 for each in (*lesser, *greater))  # Zenoh takes no leading zeros


def test_what_is_set_stays_and_others_are_left_alone(users: dict[str, Any]) -> None:
    mine = config(**users, id="7", **{"scouting/gossip/autoconnect_strategy": "always"})
    assert mine["id"] == "7" and mine["scouting"]["gossip"]["autoconnect_strategy"] == "always"
    for each in (config(), config(mode="router"), config(mode="client", **users)):
        assert "id" not in each and "autoconnect_strategy" not in each["scouting"]["gossip"]


def test_who_introduces_two_nodes_is_neither_of_them(users: dict[str, Any]) -> None:
    wiring = check("f", "n", listen=LOOP, connect=[], scout=False, mode="peer", lease=5.0, settings=users)
    home = session_config(wiring, wiring.listen)
    assert "id" in home and "id" not in matchmaker_config(home, wiring.listen[0], [])
