"""Policy nodes: their documents are signed, spread, never go back, and hold as long as they are heard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import Network, Node
from headwater.cli import main
from headwater.errors import ConfigError, FederationError
from headwater.federation.policy.freshness import Freshness
from headwater.federation.security.policies import Policies
from headwater.federation.security.settings import Security
from headwater.federation.security.signed_document import sign
from headwater.federation.wire.policy_requests import SetPolicy
from headwater.security import Rule
from headwater.services.documents import SignedDocument, content_of
from headwater.services.policy.channel_policy import ChannelPolicy, Clause
from tests.federation.certified import TLS, authority
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNEL, TYPE = "ie.tcd.sighting", "who: text, n: u32"
__all__ = ["authority"]


def shows(text: str, who: str = "*") -> ChannelPolicy:
    return ChannelPolicy(name="sightings", channel=CHANNEL, type=TYPE, clauses=[Clause(who=who, show=text)])


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def joined(make: Nodes, folder: Path, name: str, policies: Any = None, **options: Any) -> Node:
    security = Security(
        certificate=folder / f"{name}.pem",
        key=folder / f"{name}.key",
        authority=folder / "authority.pem",
        rules=[Rule("**", "*")],
        policies=policies,
    )
    place = {"connect": make.opened[0].endpoints[0]} if make.opened else {"listen": TLS}
    return make(name, network=Network(security=security), **place, **options)


def push(at: Node, to: Node, document: SignedDocument) -> str:
    """Have a node bring a document to another; why it is refused."""
    engine: Any = at._engine
    answer = engine.dialogue.ask(engine.peers[to.id], SetPolicy(document.to_bytes()))
    return str(answer.refused)


def held(node: Node) -> dict[str, int]:
    return dict(node.report().services["policies"]["policies"])


BY_OTHER = {"by": "other"}  # the node called "other" sets policies


def test_a_policy_is_in_force_everywhere_and_latecomers_ask_for_it(
    make: Nodes, authority: Path, tmp_path: Path
) -> None:
    lab = joined(make, authority, "lab", BY_OTHER)
    hq = joined(make, authority, "other", BY_OTHER, state=tmp_path / "hq.db")
    desk = joined(make, authority, "desk")
    source, log = lab.channel(CHANNEL, TYPE).source("door"), Log()
    sink = desk.channel(CHANNEL, TYPE).subscribe(log)
    make.together()
    eventually(lambda: not lab.report().services["policies"]["closed"])
    change = hq.policies.set(shows("n % 2 = 0"))
    assert change.version == 1 and change.points["lab"] == {CHANNEL: {"door": 0}}
    assert set(change.refused) == {"desk"} and "nobody else's hold" in change.refused["desk"]  # it obeys nobody
    make.ready(desk)
    for n in range(6):
        source.publish(who="ann", n=n)
    log.wait(3)
    assert log.field("n") == [0, 2, 4] and not sink.refused
    late = joined(make, authority, "reader", BY_OTHER)
    eventually(lambda: held(late) == {"sightings": 1})
    assert hq.policies.set(shows("n > 3")).version == 2 and held(late) == {"sightings": 2}
    # Anybody may know why of oneself; of others, those who set policies.
    assert desk.policies.why_at("lab", "", CHANNEL).outcome == "restricted"
    assert "input.n > 3" in hq.policies.why_at("lab", "desk", CHANNEL).shown
    with pytest.raises(FederationError, match="only those are told who may set policies"):
        desk.policies.why_at("lab", "eve", CHANNEL)
    # The policy node leaves: nothing is shown any more, and that is said.
    hq.close(drain=False)
    assert desk.until(lambda: "no policy node is there" in sink.refused.get(f"{CHANNEL}@lab", ""), GUARD)
    for n in range(10, 14):
        source.publish(who="ann", n=n)
    assert lab.flush(GUARD) and max(log.field("n")) < 10


def test_nobody_else_sets_policies_and_nobody_goes_back(make: Nodes, authority: Path, tmp_path: Path) -> None:
    lab = joined(make, authority, "lab", BY_OTHER, state=tmp_path / "lab.db")
    hq = joined(make, authority, "other", BY_OTHER)
    eve = joined(make, authority, "eve", {"by": ["other", "eve"]})
    make.together()
    hq.policies.set(shows("true"))
    engine: Any = hq._engine
    [first] = [each.signed for each in hq.policies.list()]
    hq.policies.set(shows("n < 0"))
    # Eve has seen the first version, which is genuine.
    assert "version 2 was in force already" in push(eve, lab, first)
    # She signs one herself, in her own name and in that of the policy node.
    mine: Any = eve._engine.keyring.credentials.identity  # type: ignore[union-attr]
    federation = engine.network.federation
    own = sign(mine, federation, "policy", "sightings", 3, shows("true").to_bytes())
    assert 'signed by "eve" (by certificate), and here those of other hold' in push(eve, lab, own)
    stolen = msgspec.structs.replace(own.document, signer=first.document.signer, chain=first.document.chain)
    bare = SignedDocument(stolen, content_of(stolen), b"")
    forged = SignedDocument(stolen, bare.content, mine.sign(bare.under_signature))
    assert "is not signed by it, or was changed since" in push(eve, lab, forged)
    # What is in a document and does not check is refused at the door.
    theirs = engine.keyring.credentials.identity
    broken = sign(theirs, federation, "policy", "sightings", 3, b"\xc1")
    assert "the body of a policy's document" in push(eve, lab, broken)
    renamed = sign(theirs, federation, "policy", "another", 1, shows("true").to_bytes())
    assert "the policy in it is called 'sightings'" in push(eve, lab, renamed)
    elsewhere = sign(theirs, "ucd", "policy", "sightings", 3, shows("true").to_bytes())
    assert "is for federation 'ucd'" in push(eve, lab, elsewhere)
    assert held(lab) == {"sightings": 2} and lab._engine.offences[eve.id] >= 4  # type: ignore[union-attr]
    # A restart does not forget how far it was.
    lab.close(drain=False)
    hq.close(drain=False)
    with nodes() as again:
        lab = joined(again, authority, "lab", BY_OTHER, state=tmp_path / "lab.db")
        eve = joined(again, authority, "eve", BY_OTHER)
        again.together()
        assert held(lab) == {"sightings": 2}
        assert "version 2 was in force already" in push(eve, lab, first)


def test_what_is_heard_last_holds_for_its_lease() -> None:
    now = [100.0]
    closed, leased = Freshness(None, lambda: now[0]), Freshness(60.0, lambda: now[0])
    assert "no policy node has been heard" in closed.why_not() and "no policy node has been heard" in leased.why_not()
    for each in (closed, leased):
        each.heard("hq", now[0])
        assert not each.why_not()
    now[0] += 5
    for each in (closed, leased):
        each.present(set())  # it has left
    assert "no policy node" in closed.why_not() and not leased.why_not()
    closed.present({"hq"})  # it is said to be there, and has not answered since
    assert closed.why_not()
    now[0] += 56
    assert "holds for 60.0 s" in leased.why_not()
    leased.heard("hq", 120.0)  # an answer to what was asked long ago: it is good from then on
    assert not leased.why_not()
    now[0] += 20
    assert leased.why_not()
    closed.heard("hq", now[0])
    now[0] += 11  # somebody keeps its answers back
    assert closed.why_not()


def test_whose_policies_hold_is_checked() -> None:
    with pytest.raises(ConfigError) as found:
        Policies(by="gruop:x", channels=["a..b"], lease=-1)
    assert [each.place for each in found.value.problems] == ["policies: by", "policies: channels", "policies: lease"]
    with pytest.raises(ConfigError, match="who may sign policies"):
        Security(policies={"lease": 3})
    with pytest.raises(ConfigError, match='as there is no authority: key: and a fingerprint, found "user:ann"'):
        Security(policies={"by": ["key:" + "0" * 32, "user:ann"]})
    assert Policies(by="key:" + "0" * 32).pins("0" * 64) and not Policies(by="hq").pins("0" * 64)


def test_the_command_checks_sets_lists_explains_and_lifts(
    make: Nodes, authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = joined(make, authority, "lab", {"by": "other", "channels": "ie.tcd.secret"})
    source = lab.channel(CHANNEL, TYPE).source("door")
    source.publish(who="ann", n=1)
    file = tmp_path / "sightings.toml"
    head = f'name = "sightings"\nchannel = "{CHANNEL}"\ntype = "{TYPE}"\n'
    file.write_text(f'{head}show = "who = :user and n > :clearance"\nattributes = {{ clearance = "int" }}\n')
    files = {"certificate": "other.pem", "key": "other.key", "authority": "authority.pem"}
    (tmp_path / "hq.toml").write_text(
        "".join(f'{name} = "{(authority / each).as_posix()}"\n' for name, each in files.items())
        + '[[rules]]\nchannel = "**"\nwho = "*"\n[policies]\nby = "other"\n'
    )
    there = ["--name", "other", "--connect", lab.endpoints[0], "--security", str(tmp_path / "hq.toml")]

    def said(*words: str) -> str:
        assert main(["policy", *words]) == 0
        return capsys.readouterr().out

    assert "1. *: shows `who = :user and n > :clearance`" in said("check", str(file))
    alone = said("why", "ann", CHANNEL, "--policy", str(file), "--attribute", "clearance=2")
    assert alone.startswith("restricted:") and "input.n > 2" in alone
    assert "for the rules" in said("why", "ann", "another.channel", "--policy", str(file))
    assert f"in force at lab: {CHANNEL}/door after 1" in said("set", str(file), *there)
    assert held(lab) == {"sightings": 1}
    assert "version 2" in said("set", str(file), *there)
    assert "sightings" in said("list", *there)
    assert "lab: restricted" in said("why", "ann", CHANNEL, *there)
    assert "version 3" in said("lift", "sightings", *there) and held(lab) == {}
    file.write_text(f'{head}show = "whoo = :user"\n')
    assert main(["policy", "check", str(file)]) == 2 and "who" in capsys.readouterr().err
