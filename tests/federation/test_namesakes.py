"""Two nodes of one name are said to be so: in the log of who meets the second, and in reports."""

from __future__ import annotations

import logging

import pytest

from tests.federation.nodes import eventually, nodes


def test_two_nodes_of_one_name(caplog: pytest.LogCaptureFixture) -> None:
    with nodes() as opened, caplog.at_level(logging.WARNING, "headwater.federation"):
        lab, first = opened("lab"), opened("desk")
        opened.together()
        assert not [record for record in caplog.records if "name of its own" in record.message]
        assert lab.federation_report().namesakes == {}
        second = opened("desk")
        opened.together()
        ids = {first.id, second.id}
        assert len(ids) == 2
        for node in (lab, first, second):
            eventually(lambda node=node: set(node.federation_report().namesakes.get("desk", ())) == ids)  # type: ignore[misc]
        assert "nodes of one name" in str(lab.federation_report())
        said = [record.message for record in caplog.records if "name of its own" in record.message]
        assert any("node lab" in message and first.id in message and second.id in message for message in said)
        assert any(message.startswith("node desk") for message in said)
