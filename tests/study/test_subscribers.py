"""The 178 subscribers: their interests give exactly the published counts on the day, and are code of a known size."""

from __future__ import annotations

from collections import Counter

from headwater.study.badges.code import code_facts, programs
from headwater.study.badges.margins import BADGES, CATEGORIES, NETWORKS, SIGHTINGS
from headwater.study.badges.subscribers import group, subscribers
from tests.study.results import counts


def test_who_they_are() -> None:
    who = subscribers()
    assert len(who) == len({each.name for each in who}) == 178
    assert Counter(each.group for each in who) == {"god": 1, "cameras": 12, "eyes": 162, "brothers": 3}
    assert [each.watches for each in group("cameras")] == list(NETWORKS)
    assert {each.interest().notation for each in who} == {"ecode", "predicate", "python"}


def test_their_interests_give_the_published_counts() -> None:
    found = counts()
    assert found["god"] == SIGHTINGS
    assert {each.watches: found[each.name] for each in group("cameras")} == NETWORKS
    assert {each.watches: found[each.name] for each in group("eyes")} == BADGES
    assert {each.watches: found[each.name] for each in group("brothers")} == CATEGORIES


def test_subscribers_of_a_kind_share_a_program() -> None:
    found = programs(subscribers())
    assert [count for _, _, count in found] == [1, 12, 162, 2, 1]


def test_code_facts() -> None:
    camera, god = group("cameras")[0].interest(), group("god")[0].interest()
    facts = code_facts(camera, name="a camera", shared_by=12)
    assert (facts.name, facts.lines, facts.shared_by, facts.notation) == ("a camera", 1, 12, "predicate")
    assert facts.serial_bytes == len(camera.dumps(with_text=False)) and facts.text_bytes == len(facts.text)
    assert 0 < facts.check_seconds < 60 and 0 < facts.compile_seconds < 60  # seconds, not parts of one
    assert facts.object_bytes > facts.instructions > 0 and facts.param_bytes > 0
    plain = code_facts(god)
    assert plain.instructions < facts.instructions and plain.param_bytes == 0
    brother = code_facts(group("brothers")[0].interest())
    assert brother.param_bytes > 100 * facts.param_bytes, "the badge list travels with it"
