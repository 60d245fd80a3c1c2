"""The module for browsers, in a real one: subscribes with an interest, publishes, and goes on after a break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater import Event, Node, u32
from headwater.bridges.web import WebBridge
from headwater.testing import Recorder, eventually
from tests.browser import Browser


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
