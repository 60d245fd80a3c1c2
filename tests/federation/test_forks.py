"""A process that is forked from one with nodes: they are the parent's, and what the child does reaches nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
from headwater import Event, Network, Node, u32
from headwater.security import Rule, Security

class Count(Event, name="ie.tcd.ForkCount"):
    n: u32

security = Security(user="ann", password="correct horse", users={"ann": "correct horse"}, rules=(Rule("**", "*"),))
more = {} if sys.argv[1] == "stream" else {"direct": ()}
lab = Node("lab", network=Network(listen=("tcp/127.0.0.1:0",), security=security, **more))
desk = Node("desk", network=Network(connect=lab.endpoints, security=security, **more))
source = lab.channel("c", Count).source("s")
assert desk.until(lambda: desk.remote_sources("c"), 30)
got, came = [], threading.Condition()

def took(event):
    with came:
        got.append(event.n)
        came.notify_all()

def wait(count):
    with came:
        assert came.wait_for(lambda: len(got) >= count, 30), got

desk.channel("c", Count).subscribe(took)
assert desk.ready(30)
source.publish(n=1)
wait(1)
peer = lab._engine.everyone()[0]
links = peer.links
child = os.fork()
if child == 0:
    for n in range(100, 120):
        try:
            source.publish(n=n)
        except Exception as error:
            print("child:", error)
    os._exit(0)
os.waitpid(child, 0)
for n in range(2, 20):
    source.publish(n=n)
wait(19)
offences = [dict(each.federation_report().offences) for each in (lab, desk)]
print(got == list(range(1, 20)), peer.links - links, *offences)
os._exit(0)
"""


@pytest.mark.parametrize("path", ["stream", "routed"])
def test_what_a_forked_process_publishes_reaches_nobody(path: str) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        PROGRAM.replace("os._exit(0)", "sys.stdout.flush(); os._exit(0)"),
        path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480)
    assert done.stdout.splitlines()[-1:] == ["True 0 {} {}"], done.stdout + done.stderr
