"""The configuration: values in code, TOML, and everything that can be wrong with them."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.options.config import STRATEGIES, AsyncLoop, ByDeadline, ByPriority, Config, Inline, Pool, Queue
from headwater.channel.options.pattern_limits import Patterns
from headwater.channel.time.clock import SystemClock
from headwater.errors import ConfigError, HeadwaterError, ServiceError
from headwater.store.log import Log
from headwater.store.log.location import misplaced
from tests.effort import examples

POOLS = [Pool, ByPriority, ByDeadline]


def problems(make: Any, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        make(*args, **kwargs)
    lines = [str(problem) for problem in caught.value.problems]
    for line in lines:
        assert line in str(caught.value)
    return lines


# ── what holds without saying ──


def test_defaults() -> None:
    config = Config()
    assert config.dispatch == Inline() and config.name is None
    assert (config.failures, config.close_timeout) == (10, 30.0)
    assert config.queue == Queue(limit=1024, policy="block", wait=30.0)
    assert Config.of(None) == Config.parse("") == Config.of({}) == config


def test_only_the_policy_that_blocks_waits() -> None:
    assert Queue().wait == 30.0 and Queue(wait=2).wait == 2.0
    assert Queue(policy="drop_oldest").wait is None
    assert Queue(policy="drop_newest").wait is None
    assert Queue(policy="fail").wait is None


def test_values_are_frozen_and_equal_by_content() -> None:
    assert Pool(maximum=3) == Pool(maximum=3) != ByPriority(maximum=3)
    assert hash(Config(queue=Queue(limit=5))) == hash(Config(queue=Queue(limit=5)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pool().maximum = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Queue(5)  # type: ignore[misc]
    assert dataclasses.replace(Pool(), maximum=3).maximum == 3


def test_errors_belong_to_the_tree() -> None:
    with pytest.raises(ConfigError) as caught:
        Queue(limit=0)
    assert isinstance(caught.value, ServiceError | HeadwaterError) and isinstance(caught.value, ValueError)


# ── a file ──

FILE = """
name = "dublin"
failures = 3
close_timeout = 5

[dispatch]
strategy = "pool"
minimum = 2
maximum = 4
low = 1
high = 10
idle = 2

[queue]
limit = 256
policy = "drop_oldest"
"""


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    path.write_text(FILE, encoding="utf-8")
    config = Config.load(path)
    assert config == Config(
        name="dublin",
        failures=3,
        close_timeout=5.0,
        dispatch=Pool(minimum=2, maximum=4, low=1, high=10, idle=2.0),
        queue=Queue(limit=256, policy="drop_oldest"),
    )
    assert Config.of(path) == Config.of(str(path)) == Config.parse(FILE) == config
    assert Config.of(config) is config


@pytest.mark.parametrize(("name", "cls"), STRATEGIES.items())
def test_every_strategy_by_name(name: str, cls: type) -> None:
    assert cls.name == name
    assert Config.parse(f'dispatch = "{name}"').dispatch == cls()
    assert Config.parse(f'[dispatch]\nstrategy = "{name}"').dispatch == cls()


def test_a_dict_may_hold_values() -> None:
    config = Config.of({"dispatch": ByPriority(maximum=2), "queue": Queue(limit=3), "failures": 0})
    assert config == Config(dispatch=ByPriority(maximum=2), queue=Queue(limit=3), failures=0)
    assert Config.of({"dispatch": {"strategy": "deadline", "idle": 1}}).dispatch == ByDeadline(idle=1)


def test_what_holds_can_be_shown() -> None:
    assert str(Config(name="dublin", dispatch=Pool(maximum=4))) == (
        'name = "dublin"\nfailures = 10\nhistory = 0\nclose_timeout = 30.0\n\n'
        '[dispatch]\nstrategy = "pool"\nminimum = 1\nmaximum = 4\nlow = 0\nhigh = 0\nidle = 5.0\n\n'
        '[queue]\nlimit = 1024\npolicy = "block"\nwait = 30.0\n\n'
        "[patterns]\npartitions = 100000\nruns_per_partition = 10000\nruns = 1000000\nmemory = 268435456\n"
        "foreign = 100\nlease = 30.0\ngrace = 60.0\nkeep_events = 10000\nkeep_seconds = 5.0\n"
    )
    assert "wait" not in str(Config(queue=Queue(policy="fail")))


seconds = st.floats(0, 1e6) | st.integers(0, 1000)
pools = st.builds(
    lambda cls, a, b, c, d, idle: cls(
        minimum=min(a, b), maximum=max(a, b, 1), low=min(c, d), high=max(c, d), idle=idle
    ),
    st.sampled_from(POOLS),
    st.integers(0, 64),
    st.integers(0, 64),
    st.integers(0, 1000),
    st.integers(0, 1000),
    seconds,
)
queues = st.builds(
    Queue, limit=st.integers(1, 10**6), policy=st.sampled_from(["block", "fail", "drop_oldest", "drop_newest"])
) | st.builds(Queue, wait=st.floats(0.001, 1e6))
positive = st.floats(0.001, 1e9) | st.integers(1, 10**9)
paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20).filter(
    lambda path: misplaced(path) is None
)
logs = st.builds(
    Log,
    paths,
    channels=st.sampled_from(["**", "ie.tcd.*", ("ie.**", "uk.cl")]),
    sync=st.sampled_from(["publish", "interval", "roll"]),
    interval=positive,
    roll_bytes=st.integers(4096, 1 << 30),
    roll_seconds=positive,
    rest_seconds=st.just(0) | positive,
    keep_seconds=st.none() | positive,
    keep_bytes=st.none() | st.integers(0, 1 << 40),
)
limits = st.builds(
    Patterns,
    partitions=st.integers(1, 10**6),
    memory=st.integers(1 << 16, 1 << 40),
    foreign=st.integers(0, 1000),
    lease=st.floats(0.001, 1e6) | st.integers(1, 1000),
)
configs = st.builds(
    Config,
    name=st.none() | st.from_regex(r'\A[\w"\\.-]{1,20}\Z'),
    dispatch=st.just(Inline()) | st.just(AsyncLoop()) | pools,
    queue=queues,
    failures=st.integers(0, 1000),
    history=st.integers(0, 10_000_000),
    close_timeout=seconds,
    log=st.none() | logs,
    patterns=limits,
)


@given(configs)
@settings(max_examples=examples(100), deadline=None)
def test_what_is_shown_means_the_same(config: Config) -> None:
    assert Config.parse(config.to_toml()) == config


def test_no_field_is_left_out() -> None:
    """Each field with a value of its own: so that one that is added later is not forgotten."""
    log = Log("events", channels=("a", "b"), sync="roll", interval=2.0, roll_bytes=9999, roll_seconds=3.0,
              rest_seconds=6.0, keep_seconds=4.0, keep_bytes=5)  # fmt: skip
    queue = Queue(limit=7, policy="block", wait=1.5)
    pool = ByPriority(minimum=2, maximum=5, low=1, high=3, idle=0.5)
    patterns = Patterns(partitions=1, runs_per_partition=2, runs=3, memory=1 << 20, foreign=5, lease=6, grace=9,
                        keep_events=7, keep_seconds=8)  # fmt: skip
    config = Config(
        name="n", dispatch=pool, queue=queue, failures=3, history=77, close_timeout=1.25, log=log, patterns=patterns
    )
    for value in (config, log, queue, pool, patterns):
        default = type(value)("other") if value is log else type(value)()
        same = [item.name for item in fields(value) if getattr(value, item.name) == getattr(default, item.name)]
        assert same in ([], ["policy"])
    text = config.to_toml()
    assert Config.parse(text) == config
    named = {item.name for value in (config, log, queue, pool, patterns) for item in fields(value)}
    assert all(re.search(rf"^(\[{name}\]|{name} = )", text, re.MULTILINE) for name in named), text


# ── what cannot be ──


def test_all_problems_at_once_each_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    path.write_text(
        "nme = 'x'\nfailures = -1\n[dispatch]\nstrategy = 'pool'\nmaximum = 'many'\nlow = 9\nhigh = 3\n"
        "[queue]\npolicy = 'drop-oldest'\nlimit = 0\n",
        encoding="utf-8",
    )
    assert problems(Config.load, path) == [
        f'{path}: [dispatch] maximum: expected a whole number from 1 to 1024, found "many"',
        f"{path}: [dispatch] low: expected at most high, which is 3, found 9",
        f'{path}: [queue] policy: expected one of "block", "drop_oldest", "drop_newest", "fail", found "drop-oldest"; '
        'did you mean "drop_oldest"?',
        f"{path}: [queue] limit: expected a whole number from 1 to 2147483647, found 0",
        f"{path}: nme: expected one of the settings name, failures, history, close_timeout, dispatch, queue, log, "
        "patterns, "
        'found "nme" = "x"; did you mean "name"?',
        f"{path}: failures: expected a whole number from 0 to 2147483647, found -1",
    ]
    with pytest.raises(ConfigError, match=r"^6 problems in the configuration .*service\.toml"):
        Config.load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[dispatch]\nstrategy = 'pol'",
            '[dispatch] strategy: expected one of "inline", "pool", "priority", "deadline", "asyncio", found "pol"; '
            'did you mean "pool"?',
        ),
        (
            "[dispatch]\nstrategy = 'threads'",
            '[dispatch] strategy: expected one of "inline", "pool", "priority", "deadline", "asyncio", found "threads"',
        ),
        (
            "[dispatch]\nmaximum = 3",
            '[dispatch] strategy: expected one of "inline", "pool", "priority", "deadline", "asyncio", found nothing',
        ),
        (
            "[dispatch]\nstrategy = 7",
            '[dispatch] strategy: expected one of "inline", "pool", "priority", "deadline", "asyncio", found 7',
        ),
        (
            "[dispatch]\nstrategy = 'inline'\nmaximum = 3",
            '[dispatch] maximum: expected only settings of strategy "inline", which has no threads of its own, '
            "found 3; it belongs to the strategies pool, priority, deadline",
        ),
        (
            "[dispatch]\nstrategy = 'asyncio'\nidle = 3.0",
            '[dispatch] idle: expected only settings of strategy "asyncio", which has no threads of its own, '
            "found 3.0; it belongs to the strategies pool, priority, deadline",
        ),
        (
            "[dispatch]\nstrategy = 'asyncio'\nloop = 'main'",
            '[dispatch] loop: expected no loop in a file, found "main"; leave it out and open the node in a '
            "coroutine, or give AsyncLoop(loop=...) in code",
        ),
        (
            "[dispatch]\nstrategy = 'inline'\nspeed = 3",
            '[dispatch] speed: expected no settings, found "speed" = 3',
        ),
        (
            "[dispatch]\nstrategy = 'pool'\nminimum = 9",
            "[dispatch] minimum: expected at most maximum, which is 8, found 9; maximum is 8 unless set",
        ),
        (
            "[dispatch]\nstrategy = 'pool'\nlow = 4",
            "[dispatch] low: expected at most high, which is 0, found 4; high is 0 unless set",
        ),
        (
            "[dispatch]\nstrategy = 'deadline'\nmaximun = 9",
            "[dispatch] maximun: expected one of the settings minimum, maximum, low, high, idle, "
            'found "maximun" = 9; did you mean "maximum"?',
        ),
        ("dispatch = 3", "[dispatch]: expected a table, or the name of a strategy, found 3"),
        ("queue = 'block'", '[queue]: expected a table, found "block"'),
        ("patterns = 3", "[patterns]: expected a table, found 3"),
        ("[patterns]\nlease = 0", "[patterns] lease: expected a number of seconds, above 0 to a year, found 0"),
        (
            "[queue]\npolicy = 'drop_newest'\nwait = 3",
            '[queue] wait: expected no setting, for only policy "block" waits, found 3; '
            'policy "drop_newest" drops an event at once: leave out wait, or set policy to "block"',
        ),
        (
            "[queue]\npolicy = 'fail'\nwait = 3",
            '[queue] wait: expected no setting, for only policy "block" waits, found 3; '
            'policy "fail" raises at once: leave out wait, or set policy to "block"',
        ),
        ("[queue]\nwait = 0", "[queue] wait: expected a number of seconds, above 0 to a year, found 0"),
        ("[queue]\nwait = inf", "[queue] wait: expected a number of seconds, above 0 to a year, found inf"),
        ("[queue]\nwait = true", "[queue] wait: expected a number of seconds, above 0 to a year, found true"),
        ("[queue]\nlimit = 10.0", "[queue] limit: expected a whole number from 1 to 2147483647, found 10.0"),
        ("[queue]\nlimit = true", "[queue] limit: expected a whole number from 1 to 2147483647, found true"),
        (
            "close_timeout = nan",
            "configuration: close_timeout: expected a number of seconds, from 0 to a year, found nan",
        ),
        (
            "close_timeout = [1]",
            "configuration: close_timeout: expected a number of seconds, from 0 to a year, found a list",
        ),
        (
            "name = ' x'",
            "configuration: name: expected a name of 1 to 255 printable characters, no space around it, found \" x\"",
        ),
        (
            "[Queue]\nlimit = 1",
            "configuration: Queue: expected one of the settings name, failures, history, close_timeout, dispatch, "
            'queue, log, patterns, found "Queue" = a table; did you mean "queue"?',
        ),
    ],
)  # fmt: skip
def test_one_problem(text: str, expected: str) -> None:
    assert problems(Config.parse, text) == [expected]


def test_a_misspelt_strategy_key_is_recognised() -> None:
    strategy, key = problems(Config.parse, "[dispatch]\nstratgy = 'pool'")
    assert strategy.endswith("found nothing")
    assert key.endswith('found "stratgy" = "pool"; did you mean "strategy"?')


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert problems(Config.load, missing) == [
        f"{missing}: expected a TOML file that can be read, found no such file or directory"
    ]
    assert "a TOML file that can be read" in problems(Config.of, tmp_path)[0]
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"name = '\xff'")
    assert problems(Config.load, odd) == [f"{odd}: expected a TOML file in UTF-8, found byte 0xff at 8"]
    odd.write_text("name = = 1", encoding="utf-8")
    [problem] = problems(Config.load, odd)
    assert problem.startswith(f"{odd}: expected TOML, found an error in it: ") and "line 1" in problem


def test_things_that_are_no_configuration() -> None:
    assert problems(Config.of, 3) == [
        "configuration: expected a Config, the path of a TOML file, a dict or None, found 3"
    ]
    assert len(problems(Config.of, {3: 4, "failures": None})) == 2


@pytest.mark.parametrize("cls", POOLS)
def test_pools_made_in_code(cls: Any) -> None:
    name = cls.__name__
    assert problems(cls, minimum=3, maximum=2, low=2, high=1) == [
        f"{name}: minimum: expected at most maximum, which is 2, found 3",
        f"{name}: low: expected at most high, which is 1, found 2",
    ]
    assert problems(cls, maximum=0, idle=-1) == [
        f"{name}: maximum: expected a whole number from 1 to 1024, found 0",
        f"{name}: idle: expected a number of seconds, from 0 to a year, found -1",
    ]
    assert cls(idle=3).idle == 3.0


def test_other_values_made_in_code() -> None:
    assert problems(Queue, policy="drop_oldest", wait=1.0) == [
        'Queue: wait: expected no setting, for only policy "block" waits, found 1.0; '
        'policy "drop_oldest" drops an event at once: leave out wait, or set policy to "block"'
    ]
    assert problems(Queue, policy="none", limit="x") == [
        'Queue: limit: expected a whole number from 1 to 2147483647, found "x"',
        'Queue: policy: expected one of "block", "drop_oldest", "drop_newest", "fail", found "none"',
    ]
    assert problems(Config, dispatch="pool", queue=5, failures=1.5) == [
        "Config: failures: expected a whole number from 0 to 2147483647, found 1.5",
        'Config: dispatch: expected one of Inline, Pool, ByPriority, ByDeadline, AsyncLoop, found "pool"',
        "Config: queue: expected a Queue, found 5",
    ]
    assert problems(AsyncLoop, loop=5) == ["AsyncLoop: loop: expected an asyncio event loop or None, found 5"]


def test_a_loop_must_run_or_be_given() -> None:
    assert problems(AsyncLoop().start, "dublin", SystemClock()) == [
        "dublin: dispatch: expected a running asyncio loop, found none in this thread; "
        "open the node in a coroutine, or give the loop: AsyncLoop(loop=...)"
    ]
    loop = asyncio.new_event_loop()
    loop.close()
    assert problems(AsyncLoop(loop=loop).start, "dublin", SystemClock()) == [
        "dublin: dispatch: expected an open asyncio loop, found one that is closed"
    ]
