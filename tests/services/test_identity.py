"""The identity that is carried with each wish: a user on a device at a node."""

from __future__ import annotations

import pytest

from headwater.errors import ConfigError
from headwater.services.policy.identity import NOBODY, Identity


def test_an_identity_is_a_value() -> None:
    ann = Identity(user="ann", groups=("staff", "security", "staff"), attributes={"level": 3}, node="lab.1f2e")
    again = Identity(user="ann", groups=("security", "staff"), attributes={"level": 3}, node="lab.1f2e")
    assert ann == again and hash(ann) == hash(again) and ann.groups == ("security", "staff")
    assert str(ann) == 'user "ann" at lab' and str(NOBODY) == "nobody in particular"
    with pytest.raises(TypeError):
        ann.attributes["level"] = 4  # type: ignore[index]
    assert ann != Identity(user="ann", groups=("security", "staff"), attributes={"level": 4}, node="lab.1f2e")


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as found:
        Identity(user="a\nb", groups=("",), attributes={"no name": 1, "list": [1]}, how="tokne")  # type: ignore
    text = str(found.value)
    assert [problem.place for problem in found.value.problems] == [
        "identity: user", "identity: groups", "identity: attributes", "identity: attributes list", "identity: how"
    ]  # fmt: skip
    assert "did you mean 'token'?" in text
    with pytest.raises(ConfigError, match="at most 64"):
        Identity(groups=tuple(f"g{n}" for n in range(65)))
