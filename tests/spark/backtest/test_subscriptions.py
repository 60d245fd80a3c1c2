"""Sets of subscriptions from TOML, from Python files and made in code."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.interest import Interest, as_event_type
from headwater.spark.backtest.subscriptions import Subscription, checked, load, loads, resolve

TYPE = as_event_type("badge: text, network: text, level: f64")
BADGES = "badge,kind,weight\n0-1,person,2\n0-2,person,3\n0-3,visitor,4\n"


def problems(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    return [str(problem) for problem in error.value.problems]


def test_a_file_says_it_all(tmp_path: Path) -> None:
    (tmp_path / "badges.csv").write_text(BADGES)
    (tmp_path / "subs.toml").write_text(
        """
        channel = "orl.sighting"
        at = "office"
        type = "badge: text, network: text, level: f64"

        [[subscription]]
        name = "god"
        at = "heaven"

        [[subscription]]
        name = "camera {network}"
        where = "network = :network"
        each = {param = "network", in = ["n#1", "n#2"]}

        [[subscription]]
        name = "eye"
        at = "home of {badge}"
        where = "badge = :badge"
        each = {param = "badge", in = {file = "badges.csv", column = "badge"}}

        [[subscription]]
        name = "brother {kind}"
        where = ":kinds[badge] = :kind and level > :limits[badge] and not badge in :not"
        params = {kinds = {file = "badges.csv", key = "badge", value = "kind"}, limits = {"0-1" = 0.5}, not = ["x"]}
        each = {param = "kind", in = ["person"]}
        """
    )
    found = load(tmp_path / "subs.toml")
    assert (found.channel, found.type) == ("orl.sighting", as_event_type("badge: text, network: text, level: f64"))
    assert [each.name for each in found.subscriptions] == [
        "god", "camera n#1", "camera n#2", "eye 0-1", "eye 0-2", "eye 0-3", "brother person"
    ]  # fmt: skip
    wanted = resolve(found, TYPE)
    assert [each.at for each in wanted][:4] == ["heaven", "office", "office", "home of 0-1"]
    assert wanted[0].interest is None
    brother = wanted[-1].interest
    assert brother is not None and brother.params["kinds"] == {"0-1": "person", "0-2": "person", "0-3": "visitor"}
    assert brother.test({"badge": "0-1", "network": "n", "level": 0.7})
    assert not brother.test({"badge": "0-3", "network": "n", "level": 0.7})


def test_each_may_have_several_parameters_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "badges.csv").write_text(BADGES)
    found = loads(
        """
        [[subscription]]
        name = "{network} above {limit}"
        where = "network = :network and level > :limit and level < :weights[badge]"
        each = [{param = "network", in = ["a", "b"]}, {param = "limit", in = [1, 2]}]
        params = {weights = {file = "badges.csv", key = "badge", value = "weight", numbers = ["weight"]}}
        """,
        folder=tmp_path,
    )
    assert [each.name for each in found.subscriptions] == ["a above 1", "a above 2", "b above 1", "b above 2"]
    interest = resolve(found, TYPE)[1].interest
    assert interest is not None and interest.params == {
        "network": "a", "limit": 2, "weights": {"0-1": 2, "0-2": 3, "0-3": 4}
    }  # fmt: skip


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        loads(
            """
            chanel = "x"
            at = ""
            [[subscription]]
            where = "level > 1"
            [[subscription]]
            name = "a"
            wher = "level > 1"
            notation = "prolog"
            [[subscription]]
            name = "a"
            params = {x = [[1]], y = {file = "nowhere.csv", key = "a", value = "b"}, z = {file = "f.csv", key = "a"}}
            each = {in = [1]}
            """,
            where="subs.toml",
            folder=tmp_path,
        )
    said = "\n".join(problems(error))
    for part in (
        "subs.toml: chanel: expected one of channel, type, at, log, title, subscription, pattern, trigger, found "
        "'chanel'; did you mean 'channel'?",
        "subs.toml: at: expected text that is not empty",
        "subs.toml: subscription 1 name: expected a name, found none",
        "subscription 2 'a' wher: expected one of",
        "subscription 2 'a' notation: expected predicate or ecode or python, found 'prolog'",
        "subscription 3 name: expected a name of its own, found 'a' again",
        "subscription 3 'a' params.x: expected a list of plain values",
        "subscription 3 'a' params.y file: expected a readable CSV file",
        "subscription 3 'a' params.z: expected key and value for a map, or column for a set",
        "subscription 3 'a' each: expected {param",
    ):
        assert part in said, said


def test_interests_that_do_not_fit_are_all_named() -> None:
    found = loads(
        """
        [[subscription]]
        name = "one"
        where = "lvel > 1"
        [[subscription]]
        name = "two"
        where = "level > :limit"
        [[subscription]]
        name = "three"
        params = {x = 1}
        [[subscription]]
        name = "fine"
        where = "level > 1"
        """
    )
    with pytest.raises(ConfigError) as error:
        resolve(found, TYPE)
    said = problems(error)
    assert len(said) == 3
    assert "subscription 1 'one' where: expected an interest on Event" in said[0] and "lvel" in said[0]
    assert "'two'" in said[1] and "limit" in said[1]
    assert "'three'" in said[2] and "no interest" in said[2]


def test_names_of_each_must_differ() -> None:
    with pytest.raises(ConfigError, match=r"write \{param\}"):
        loads(
            """
            [[subscription]]
            name = "{a}"
            where = "level > :a and level < :b"
            each = [{param = "a", in = [1]}, {param = "b", in = [1, 2]}]
            """
        )


def test_a_python_file(tmp_path: Path) -> None:
    path = tmp_path / "subs.py"
    path.write_text(
        "from headwater.spark.backtest import Subscription\n"
        "channel = 'x.y'\n"
        "subscriptions = [Subscription(name=f'n{i}', where='level > :l', params={'l': i}, at='a') for i in range(3)]\n"
    )
    found = load(path)
    assert (found.channel, len(found)) == ("x.y", 3)
    path.write_text("subscriptions = [1, 2]")
    with pytest.raises(ConfigError, match="expected a Subscription, found int"):
        load(path)
    path.write_text("x = 1")
    with pytest.raises(ConfigError, match="a list of Subscription, found none"):
        load(path)
    path.write_text("1 / 0")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        load(path)


def test_interests_made_in_code_move_to_the_type() -> None:
    other = as_event_type("level: f64, more: text?")
    made = checked(
        [Subscription(name="a", where=Interest("level > 1", other)), Subscription(name="b", where="level > 1")]
    )
    wanted = resolve(made, TYPE)
    assert all(each.interest is not None and each.interest.type == TYPE and each.at == "sink" for each in wanted)


@pytest.mark.parametrize("name", ["subs.json", "nowhere.toml"])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name.partition(".")[2] and "expected"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("level > and network = 'x'", "line 1, column 9: this is not expected here"),
        ("level > (1", "this is never closed"),
        ("{ return input.level > ; }", "this is not C here"),
        ("{ return 1; ", "this bracket is never closed"),
        ("lambda e: e.level >", "this is not Python"),
    ],
)
def test_what_is_wrong_on_any_event_type_is_said_when_the_file_is_read(where: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(f"""
            [[subscription]]
            name = "loud"
            where = '''{where}'''

            [[subscription]]
            name = "soft"
            where = "limit > 1 and levl < 2 and :kinds[badge] = 1"
        """)
    [problem] = problems(caught)
    assert problem.startswith("subscriptions: subscription 1 'loud' where") and said in problem


def test_each_may_be_only_where_the_sinks_are() -> None:
    found = loads("""
        [[subscription]]
        name = "loud in {room}"
        at = "{room}"
        where = "level > 0.5"
        each = {param = "room", in = ["hall", "lab"]}
    """)
    wanted = resolve(found, TYPE)
    assert [(each.name, each.at) for each in wanted] == [("loud in hall", "hall"), ("loud in lab", "lab")]


def test_a_parameter_that_the_interest_never_reads_is_named() -> None:
    found = loads("""
        [[subscription]]
        name = "loud"
        where = "level > :limit"
        params = {limit = 0.5, limits = 3}
    """)
    with pytest.raises(ConfigError) as caught:
        resolve(found, TYPE)
    [problem] = problems(caught)
    assert "no parameter 'limits'" in problem and "did you mean 'limit'?" in problem
