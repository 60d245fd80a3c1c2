"""The module for browsers, in a real one: subscribes with an interest, publishes, and goes on after a break."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from headwater import Event, Node, f64, u32, u64
from headwater.bridges.web import WebBridge, WebLimits
from headwater.policy import ChannelPolicy, Clause
from headwater.security import Issuer, Rule, Security
from headwater.testing import Recorder, eventually
from tests.browser import Browser
from tests.federation.test_tokens import KEY, written
from tests.federation.test_tokens import jwk as public
from tests.ports import free_port


class Door(Event):
    floor: u32
    name: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made


def test_a_page_follows_publishes_and_goes_on_after_a_break(browser: Browser) -> None:
    with Node("lab") as node:
        doors = node.channel("doors", Door)
        seen: Recorder[Door] = Recorder()
        doors.subscribe(seen, "name = 'page'")
        bridge = node.services.add(WebBridge(node, "127.0.0.1:0"))
        browser.visit(f"{bridge.endpoint}/")
        browser.run(
            """
            (async () => {
              const { connect } = await import("/headwater.js");
              window.got = []; window.states = []; window.lost = [];
              const Real = WebSocket;
              window.WebSocket = class extends Real { constructor(...a) { super(...a); window.socket = this; } };
              window.node = connect(undefined, {
                onState: (state) => states.push(state), onDropped: (_, count) => lost.push(count) });
              const asked = { where: "floor >= :f", params: { f: 2 } };
              window.sub = node.subscribe("doors", asked, (event, n) => got.push([n, event.floor]));
              await sub.ready;
              await node.publish("doors", { floor: 1, name: "page" });
            })()
            """
        )
        assert [each.floor for each in seen.wait(1)] == [1]
        source = doors.source()
        for floor in (1, 2, 3):
            source.publish(Door(floor, "x"))
        eventually(lambda: browser.run("got") == [[1, 2], [2, 3]])
        refused = browser.run("node.publish('doors', { floor: -1 }).catch((error) => error.message)")
        assert "floor" in refused or "name" in refused
        unknown = browser.run("node.subscribe('nowhere', {}, () => 0).ready.catch((error) => error.message)")
        assert "found none" in unknown

        browser.run("socket.close(4000)")  # as a network that is gone for a moment, which the page does not choose
        source.publish(Door(4, "x"))
        eventually(lambda: bridge.report()["resumed"] == 1)
        eventually(lambda: browser.run("got") == [[1, 2], [2, 3], [3, 4]])
        assert browser.run("states") == ["connected", "closed", "resumed"] and browser.run("lost") == []
        source.publish(Door(5, "x"))
        eventually(lambda: browser.run("got.length") == 4)
        browser.run("node.close()")
        eventually(lambda: bridge.report()["clients"] == 0)


def test_what_a_page_has_said_when_its_connection_breaks_is_asked_again_or_told(browser: Browser) -> None:
    """No promise is left open: a subscription is there in the end, of an event it is said that nobody knows."""
    with Node("lab") as node:
        doors = node.channel("doors", Door)
        bridge = node.services.add(WebBridge(node, "127.0.0.1:0"))
        browser.visit(f"{bridge.endpoint}/")
        browser.run(
            """
            (async () => {
              const { connect } = await import("/headwater.js");
              window.got = []; window.breaks = "";
              const Real = WebSocket;
              window.WebSocket = class extends Real {
                send(text) {  // the connection breaks before this has left, or before its answer has come
                  const told = breaks && JSON.parse(text).op === breaks.split(" ")[1];
                  if (!told || breaks.startsWith("after")) super.send(text);
                  if (told) { breaks = ""; this.onmessage = null; this.close(4000); }
                }
              };
              window.node = connect();
              await node.subscribe("doors", {}, () => 0).ready;
            })()
            """
        )
        source = doors.source()
        for number, moment in enumerate(("before", "after"), 1):
            browser.run(f"breaks = '{moment} subscribe'")
            browser.run("node.subscribe('doors', {}, (event) => got.push(event.floor)).ready.then(() => 0)")
            eventually(lambda number=number: bridge.report()["resumed"] == number)  # type: ignore[misc]
            source.publish(Door(number, "x"))
        eventually(lambda: browser.run("got.toSorted()") == [1, 2, 2])
        browser.run("breaks = 'after publish'")
        said = browser.run("node.publish('doors', { floor: 9, name: 'page' }).catch((error) => error.message)")
        assert "may have been published" in said
        left = browser.run(
            """(async () => {
              breaks = "before subscribe";
              const asked = node.subscribe("doors", {}, () => 0).ready.catch((error) => error.message);
              node.close();
              return await asked; })()"""
        )
        assert left == "closed"


def test_a_page_of_another_site_gets_nothing(browser: Browser) -> None:
    with Node("lab") as node, Node("other") as other:
        node.channel("doors", Door)
        ours = node.services.add(WebBridge(node, "127.0.0.1:0"))
        theirs = other.services.add(WebBridge(other, "127.0.0.1:0"))
        browser.visit(f"{theirs.endpoint}/")
        port = ours.endpoint.rpartition(":")[2]
        told = browser.run(
            f"""new Promise((done) => {{
              const socket = new WebSocket("ws://127.0.0.1:{port}/ws");
              socket.onopen = () => done("open"); socket.onerror = () => done("refused"); }})"""
        )
        assert told == "refused"
        posted = browser.run(
            f"""fetch("http://127.0.0.1:{port}/channels/doors", {{ method: "POST", body: '{{"floor": 1, "name": "x"}}',
              headers: {{ "Content-Type": "application/json" }} }}).then(() => "done", () => "refused")"""
        )
        assert posted == "refused"
        assert ours.report()["published"] == 0 and ours.report()["refused"] >= 2


PAGE = """
(async () => {
  const { connect } = await import("/headwater.js");
  window.got = []; window.states = []; window.lost = []; window.over = [];
  const Real = window.RealSocket ??= WebSocket;
  window.WebSocket = class extends Real { constructor(...a) { super(...a); window.socket = this; } };
  window.options = {
    onState: (state) => { states.push(state); throw new Error("a page that is wrong"); },
    onDropped: (_, count) => lost.push(count), onEnded: (_, why) => over.push(why) };
  window.node = connect(undefined, options);
  window.sub = node.subscribe("doors", {}, (event, n) => got.push([n, event.floor]));
  await sub.ready;
})()
"""


def test_a_page_begins_anew_at_a_node_that_was_started_again(browser: Browser) -> None:
    """Also when the connection breaks just when it has asked for everything again."""
    port = free_port()
    with Node("lab") as node:
        node.channel("doors", Door)
        node.services.add(WebBridge(node, f"127.0.0.1:{port}"))
        browser.visit(f"http://127.0.0.1:{port}/")
        browser.run(PAGE)
        browser.run(
            """(() => {
              const Real = WebSocket; window.breaks = 1;
              window.WebSocket = class extends Real { send(text) {
                if (breaks && JSON.parse(text).op === "subscribe") { breaks = 0; this.close(4000); }
                else super.send(text); } }; })()"""
        )
    with Node("lab") as node:
        source = node.channel("doors", Door).source()
        bridge = node.services.add(WebBridge(node, f"127.0.0.1:{port}"))
        eventually(lambda: bridge.report()["subscriptions"] == 1)
        source.publish(Door(7, "x"))
        eventually(lambda: browser.run("got") == [[1, 7]])
        assert browser.run("lost") == [None] and browser.run("breaks") == 0
        assert browser.run("states") == ["connected", "closed", "connected", "closed", "resumed"]
        browser.run("node.close()")


def test_a_page_that_hears_nothing_comes_again(browser: Browser) -> None:
    """A network that swallows everything closes no connection."""
    with Node("lab") as node:
        source = node.channel("doors", Door).source()
        bridge = node.services.add(WebBridge(node, "127.0.0.1:0", limits=WebLimits(ping=0.2)))
        browser.visit(f"{bridge.endpoint}/")
        browser.run(PAGE)
        browser.run("socket.onmessage = null")
        source.publish(Door(1, "x"))
        eventually(lambda: browser.run("got") == [[1, 1]])
        assert "resumed" in browser.run("states") and browser.run("lost") == []
        browser.run("node.close()")


def test_a_page_is_told_what_ends_and_no_promise_is_left_open(browser: Browser) -> None:
    security = Security(user="node", password="n", users={"node": "n"}, rules=[Rule("**", "*")])
    with Node("house", listen="127.0.0.1:0", security=security) as node:
        node.channel("doors", Door)
        bridge = node.services.add(WebBridge(node, "127.0.0.1:0", anonymous=True))
        browser.visit(f"{bridge.endpoint}/")
        browser.run(PAGE)
        refusal = ChannelPolicy(name="doors", channel="doors", type=Door, clauses=[Clause(who="bob", show="true")])
        node.policies.set(refusal)
        eventually(lambda: browser.run("over.length") == 1)
        assert "no clause about" in browser.run("over[0]")
        browser.run("node.close()")
        for late in ("node.publish('doors', {})", "node.subscribe('doors', {}, () => 0).ready"):
            assert browser.run(f"{late}.catch((error) => error.message)") == "closed"
        assert browser.run("states") == ["connected", "ended"]
        refused = """(async () => {
          const { connect } = await import("/headwater.js");
          const node = connect(undefined, { user: "node", password: "guess" });
          return [await node.publish("doors", {}).catch((error) => error.message),
                  await node.publish("doors", {}).catch((error) => error.message)]; })()"""
        first, later = browser.run(refused)
        assert "known here" in first and first == later


def test_a_page_may_fetch_its_token(browser: Browser, tmp_path: Path) -> None:
    """Whatever happens to that: it is tried again."""
    keys = written(tmp_path / "keys.json", public(KEY, kid="one"))
    issuer = Issuer(issuer="https://login.example", audience="building", keys=keys)
    given = {"iss": issuer.issuer, "aud": "building", "sub": "ann", "exp": time.time() + 3600}
    token = jwt.encode(given, KEY, "EdDSA", headers={"kid": "one"})
    with Node("lab") as node:
        node.channel("doors", Door)
        bridge = node.services.add(WebBridge(node, "127.0.0.1:0", issuers=[issuer]))
        browser.visit(f"{bridge.endpoint}/")
        browser.run(
            f"""(async () => {{
              const {{ connect }} = await import("/headwater.js");
              let asked = 0;
              const token = async () => {{ if (!asked++) throw new Error("not now"); return "{token}"; }};
              const node = connect(undefined, {{ token }});
              await node.publish("doors", {{ floor: 1, name: "page" }});
              node.close(); }})()"""
        )
        assert bridge.report()["published"] == 1


class Sum(Event):
    total: u64
    share: f64


def test_large_integers_and_records_pass_a_page_unharmed(browser: Browser) -> None:
    """JavaScript has no numbers for all of 64 bits."""
    with Node("lab") as node:
        sums, plain = node.channel("sums", Sum), node.channel("plain", bytes)
        bridge = node.services.add(WebBridge(node, "127.0.0.1:0"))
        browser.visit(f"{bridge.endpoint}/")
        browser.run(
            """(async () => {
              const { connect } = await import("/headwater.js");
              window.got = []; window.bytes = []; window.records = [];
              const node = connect();
              await node.subscribe("plain", { binary: true }, (data, n) => bytes.push([n, ...data])).ready;
              await node.subscribe("sums", { binary: true }, (data) => records.push(data)).ready;
              await node.subscribe("sums", {}, async (event, n) => {
                got.push([n, typeof event.total, String(event.total), event.share]);
                if (n === 1) { event.share = NaN; await node.publish("sums", event); }
                if (n === 2) await node.publish("sums", records[0]);
              }).ready;
              await node.publish("plain", new Uint8Array([0, 255, 10]));
            })()"""
        )
        source = plain.source()
        for data in (b"", b"ab"):
            source.publish(data)
        sums.source().publish(Sum(2**64 - 1, 0.1234567890123456))
        largest = str(2**64 - 1)
        wanted = [[1, "bigint", largest, 0.1234567890123456], [2, "bigint", largest, "NaN"]]
        eventually(lambda: browser.run("got.length") == 3)
        assert browser.run("got") == [*wanted, [3, *wanted[0][1:]]]
        assert sorted(each[1:] for each in browser.run("bytes")) == [[], [0, 255, 10], [97, 98]]


def test_a_page_of_a_site_that_is_named_uses_everything(browser: Browser) -> None:
    """By module, WebSocket, fetch and EventSource, each of which a browser asks for leave for in its own way."""
    with Node("lab") as node, Node("other") as other:
        source = node.channel("doors", Door).source()
        theirs = other.services.add(WebBridge(other, "127.0.0.1:0"))
        ours = node.services.add(WebBridge(node, "127.0.0.1:0", origins=[theirs.endpoint + "/"]))
        browser.visit(f"{theirs.endpoint}/")
        browser.run(
            f"""(async () => {{
              const {{ connect }} = await import("{ours.endpoint}/headwater.js");
              window.got = []; window.told = [];
              window.node = connect("{ours.endpoint}/ws".replace("http", "ws"));
              await node.subscribe("doors", {{}}, (event) => got.push(event.floor)).ready;
              window.follow = new EventSource("{ours.endpoint}/channels/doors/events?where=floor%3E1");
              follow.onmessage = ({{ data }}) => told.push(JSON.parse(data).floor);
              follow.addEventListener("dropped", ({{ data }}) => told.push(data));
              await new Promise((done) => follow.onopen = done);
              const post = {{ method: "POST", headers: {{ "Content-Type": "application/json" }} }};
              const event = JSON.stringify({{ floor: 1, name: "page" }});
              window.answer = await (await fetch("{ours.endpoint}/channels/doors", {{ ...post, body: event }})).json();
            }})()"""
        )
        source.publish(Door(2, "x"))
        assert browser.run("answer") == {"published": 1}
        eventually(lambda: browser.run("got") == [1, 2] and browser.run("told") == [2])
        browser.run("follow.close(); node.close()")
