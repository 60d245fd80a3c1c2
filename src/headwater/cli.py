"""The `headwater` command."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from headwater.arguments import given_params, pairs, seconds, whole
from headwater.completion import SHELLS, script
from headwater.errors import ConfigError, HeadwaterError, HeadwaterWarning, InterestError
from headwater.explanation import explain, explain_pattern
from headwater.extras import extra_of, how_to_install
from headwater.federation.command.interests import add_interests
from headwater.federation.command.names import add_names
from headwater.federation.command.objects import add_objects
from headwater.federation.command.policy import add_policy
from headwater.federation.command.replay import add_replay
from headwater.federation.command.users import add_users
from headwater.interest import NOTATIONS, Interest, as_event_type
from headwater.late import pa, pq
from headwater.native.python.interpreter import why_plain
from headwater.python_versions import Interpreter
from headwater.spark.backtest.command import add_backtest
from headwater.spark.ingest.command import add_infer, add_ingest
from headwater.store.log.command import add_log
from headwater.store.log.location import folder_argument
from headwater.study.command import add_study
from headwater.types import EventType, event_type
from headwater.types.model import SCALARS
from headwater.version import VERSION

EXAMPLES = """\
examples:
  headwater explain "level > 0.5 and network == 'ORL-Net#1'" --type 'level: f32, network: text'
  headwater explain "level > :limit" --type mymodule:Sighting --param limit=0.5
  headwater explain --file filter.c --notation ecode --type recording.parquet --asm
  headwater explain "a: hall.door; b: hall.door{who != a.who} within 2 seconds" --channel hall.door='who: text'
  headwater explain --file tailgating.txt --log events/ --svg tailgating.svg
"""
LISTENING = """\
examples:
  headwater listen ie.tcd.sighting --where "level > 0.5" --connect tcp/127.0.0.1:7447
  headwater listen --pattern "a: hall.door; b: hall.door{who != a.who} within 2 seconds" --connect tcp/127.0.0.1:7447
"""
COMPLETION = """\
examples:
  eval "$(headwater completion bash)"                                        in ~/.bashrc
  eval "$(headwater completion zsh)"                                         in ~/.zshrc, after compinit
  headwater completion fish > ~/.config/fish/completions/headwater.fish
"""


class UsageError(Exception):
    """Something on the command line is off."""


class _Version(argparse.Action):
    """Prints the version of Headwater, and whether machine code encodes and publishes on this Python."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        python = f"{Interpreter.here()}.{sys.version_info.micro}"
        why = why_plain()
        how = "by machine code" if why is None else f"in Python, not by machine code: {why}"
        print(f"headwater {VERSION}\non {python}: events are encoded, decoded and published {how}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """The command line: all commands with their options."""
    parser = argparse.ArgumentParser(
        prog="headwater",
        description="A distributed, typed event service in which interest travels to the event.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and how it runs on this Python")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    _add_explain(commands)
    _add_node(commands)
    _add_listen(commands)
    _add_publish(commands)
    _add_certificates(commands)
    add_users(commands)
    add_log(commands)
    add_replay(commands, _add_joining, _joining)
    add_objects(commands, _add_joining, _joining)
    add_policy(commands, _add_joining, _joining)
    add_interests(commands, _add_joining, _joining, load_type, _comparing)
    add_names(commands, _add_joining, _joining)
    add_infer(commands)
    add_ingest(commands)
    add_backtest(commands)
    add_study(commands)
    _add_completion(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = make_parser().parse_args(argv)
    try:
        with _telling(args.command) if argv is None else nullcontext():
            result: int = args.run(args)
    except ConfigError as error:
        told = [str(problem) for problem in error.problems]
        between = "\n" if any("\n" in each for each in told) else "; "
        print(f"headwater {args.command}: {between.join(told)}", file=sys.stderr)
        return 2
    except (HeadwaterError, UsageError) as error:
        print(f"headwater {args.command}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (extra := extra_of(error.name)) is None:
            raise
        package = (error.name or "").partition(".")[0]
        print(
            f"headwater {args.command}: this needs {package}, which is not installed: {how_to_install(extra)}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
    return result


@contextmanager
def _telling(command: str) -> Iterator[None]:
    """What is hardly meant is told in the words of the command, not with a line of its program."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, HeadwaterWarning):
            print(f"headwater {command}: warning: {message}", file=sys.stderr)
        else:
            otherwise(message, category, *where, **more)

    with warnings.catch_warnings():
        otherwise, warnings.showwarning = warnings.showwarning, show
        yield


def _add_explain(commands: Any) -> None:
    """The command `headwater explain`: of an interest, or, where there are channels, of a pattern."""
    sub = commands.add_parser(
        "explain",
        help="show what an interest or a pattern means, costs and becomes",
        description="Show what an interest means, what it costs and what it becomes in each execution; or, with the "
        "channels that it is over, a pattern: what was understood, its automaton as a picture, what runs at the "
        "sources, and what it costs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("interest", nargs="?", help="the interest, or the pattern; or use --file")
    sub.add_argument("--file", type=Path, help="read it from a file (- for standard input)")
    sub.add_argument("--type", help="the event type: module:Class, file.py:Class, an Arrow or Parquet file, or its "
                     "fields, as in 'level: f32, network: text?'")  # fmt: skip
    sub.add_argument("--output", help="the output type of a transformation, written like --type")
    sub.add_argument("--notation", choices=NOTATIONS, help="default: E-Code if it starts with {, Python if it starts "
                     "with def or lambda, else predicate text")  # fmt: skip
    sub.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter: a number, text, "
                     "true, false, or JSON; a JSON list is a set, a JSON object a map")  # fmt: skip
    sub.add_argument("--asm", action="store_true", help="show the machine code")
    sub.add_argument("--llvm", action="store_true", help="show the LLVM IR")
    group = sub.add_argument_group("patterns")
    group.add_argument("--channel", action="append", default=[], metavar="NAME=TYPE", help="a channel that there is, "
                       "its type as for --type; may be given again")  # fmt: skip
    group.add_argument("--log", type=folder_argument, metavar="FOLDER", help="the channels are those of a log")
    group.add_argument("--alias", action="append", default=[], metavar="NAME=CHANNEL", help="another name of a channel")
    group.add_argument("--svg", type=Path, metavar="FILE", help="write the picture as SVG, too")
    sub.set_defaults(run=_explain)


def _explain(args: argparse.Namespace) -> int:
    """Of an interest; of a pattern where channels are given, and where they were forgotten, say so."""
    text = _text(args)
    params = given_params(args.param)
    if args.channel or args.log is not None:
        return _explain_pattern(text, args, params)
    if args.type is None:
        try:
            on = _infer(text, args, params)
        except InterestError:
            if not _reads_as_pattern(text):
                raise
            hint = "name the channels that it is over: --channel NAME=TYPE, or --log FOLDER"
            raise UsageError(f"this reads as a pattern; {hint}") from None
    else:
        on = load_type(args.type)
    output = load_type(args.output) if args.output else None
    if output is not None and _is_predicate(text, args):
        raise UsageError("--output: predicate text can only filter; write a transformation in E-Code or Python")
    interest = Interest(text, on, output=output, params=params, notation=args.notation)
    print(explain(interest, asm=args.asm, llvm=args.llvm))
    return 0


def _explain_pattern(text: str, args: argparse.Namespace, params: dict[str, object]) -> int:
    """Of a pattern: the page, and the picture as a file where one is wanted."""
    from headwater.patterns.pattern import Pattern
    from headwater.store.log.reader import channel_types

    given = [name for name in ("type", "output", "notation", "asm", "llvm") if getattr(args, name)]
    if given:
        raise UsageError(f"--{given[0]} is for interests; a pattern is over the channels of --channel or --log")
    channels: dict[str, Any] = {} if args.log is None else channel_types(args.log)
    channels |= {name: load_type(spec) for name, spec in pairs("--channel", "TYPE", args.channel)}
    aliases = dict(pairs("--alias", "CHANNEL", args.alias))
    said = explain_pattern(Pattern(text, channels, params=params, aliases=aliases))
    print(said)
    if args.svg is not None:
        drawn = said.svg()
        if drawn is None:
            raise UsageError(f"--svg {args.svg}: the automaton is too large to be looked at")
        try:
            args.svg.write_text(drawn + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--svg {args.svg}: {error.strerror}") from None
    return 0


def _add_completion(commands: Any) -> None:
    sub = commands.add_parser(
        "completion",
        help="print a script that has a shell complete this command",
        description="Print a script that has a shell complete this command, its options and their values.",
        epilog=COMPLETION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("shell", choices=tuple(SHELLS), help="which shell")

    def run(args: argparse.Namespace) -> int:
        sys.stdout.write(script(args.shell, make_parser()))
        return 0

    sub.set_defaults(run=run)


# ── the federation: imported when it is needed, for it brings Zenoh along ──


def _add_node(commands: Any) -> None:
    sub = commands.add_parser(
        "node",
        help="run a node, by default one that passes on for others",
        description="Run a node until Ctrl-C or SIGTERM. It says where it listens, and who joins and leaves.",
    )
    _add_joining(sub, config=True)
    sub.add_argument("--router", action=argparse.BooleanOptionalAction, default=True,
                     help="pass on between nodes that cannot reach each other (default)")  # fmt: skip
    sub.add_argument("--names", type=Path, metavar="FILE", help="serve domains, and look names up, as a TOML file says")

    def run(args: argparse.Namespace) -> int:
        from headwater.federation.command import command

        return command.run_node(_joining(args), args.names)

    sub.set_defaults(run=run)


def _add_listen(commands: Any) -> None:
    """The command `headwater listen`. Imports wait until it runs, so that other commands start quickly."""
    sub = commands.add_parser(
        "listen",
        help="print events of a channel, or the matches of a pattern, as lines of JSON",
        description="Print the events of a channel, or of all whose names fit, as lines of JSON; or, with --pattern, "
        "what several events say together.",
        epilog=LISTENING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("channel", nargs="?", help="its name, or several by wildcards, as in 'ie.tcd.**'")
    sub.add_argument("--pattern", metavar="TEXT", help="print the matches of a pattern over channels that nodes have")
    sub.add_argument("--alias", action="append", default=[], metavar="NAME=CHANNEL", help="another name of a channel, "
                     "for --pattern")  # fmt: skip
    sub.add_argument("--order", choices=("time", "arrival"), default="time", help="of the events that --pattern looks "
                     "at; by arrival nothing waits, and two runs may differ (default: %(default)s)")  # fmt: skip
    sub.add_argument("--where", help="an interest: only what passes crosses the network")
    sub.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the interest, "
                     "or of the pattern")  # fmt: skip
    sub.add_argument("--type", help="the event type, as for explain; default: as another node has it")
    sub.add_argument("--count", type=whole, help="end after so many events")
    sub.add_argument("--for", dest="seconds", type=seconds, help="end after so many seconds")
    sub.add_argument("--history", type=whole, default=0, help="begin with so many events of the past, where there are")
    _add_joining(sub)

    def run(args: argparse.Namespace) -> int:
        """Of a channel or of a pattern."""
        from headwater.federation.command import command

        if (args.channel is None) == (args.pattern is None):
            raise UsageError("expected a channel or --pattern, and not both")
        if args.pattern is not None:
            if args.where or args.type:
                raise UsageError("--where and --type are for a channel; a pattern has conditions of its own")
            return command.match(
                _joining(args),
                args.pattern,
                params=given_params(args.param),
                aliases=dict(pairs("--alias", "CHANNEL", args.alias)),
                count=args.count,
                seconds=args.seconds,
                wait=args.wait,
                order=args.order,
                history=args.history,
            )
        return command.listen(
            _joining(args),
            args.channel,
            where=args.where,
            params=given_params(args.param),
            type=load_type(args.type) if args.type else None,
            count=args.count,
            seconds=args.seconds,
            wait=args.wait,
            history=args.history,
        )

    sub.set_defaults(run=run)


def _add_publish(commands: Any) -> None:
    """The command `headwater publish`."""
    sub = commands.add_parser(
        "publish",
        help="publish events from lines of JSON on standard input",
        description="Publish events from lines of JSON on standard input, once somebody wants them. It says how many.",
        epilog="exit code: 0; 1 if not all was acknowledged in time; 2 if it stopped, for instance at a line that is "
        "no event; 3 if\nsuch lines were left out (--bad-lines skip) and all others published\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("channel", help="its name")
    sub.add_argument("--type", help="the event type, as for explain; default: as another node has it")
    sub.add_argument("--allow-nobody", action="store_true", help="publish also if nobody has subscribed")
    sub.add_argument("--bad-lines", choices=("stop", "skip"), default="stop", help="at a line that is no event: stop, "
                     "and say how many were published, or go on and count them (default: %(default)s)")  # fmt: skip
    _add_joining(sub)

    def run(args: argparse.Namespace) -> int:
        from headwater.federation.command import command

        kind = load_type(args.type) if args.type else None
        return command.publish(
            _joining(args),
            args.channel,
            getattr(sys.stdin, "buffer", sys.stdin),  # bytes: a line may be anything
            type=kind,
            wait=args.wait,
            allow_nobody=args.allow_nobody,
            skip=args.bad_lines == "skip",
        )

    sub.set_defaults(run=run)


def _add_certificates(commands: Any) -> None:
    """The command `headwater certificates`, with its four kinds."""
    sub = commands.add_parser(
        "certificates",
        help="make an authority, and certificates for nodes",
        description="Make an authority of one's own, and certificates from it for nodes.",
    )
    kinds = sub.add_subparsers(dest="what", metavar="what", required=True)
    authority = kinds.add_parser("authority", help="make an authority: authority.pem and authority.key")
    issue = kinds.add_parser("issue", help="issue a certificate for a node: NAME.pem and NAME.key")
    renew = kinds.add_parser("renew", help="issue NAME.pem anew, for the same key; a running node takes it up")
    revoke = kinds.add_parser("revoke", help="take certificates back: revoked.pem, which must be made anew in time")
    for each in (authority, issue, renew, revoke):
        each.add_argument("folder", type=Path, help="where its files are")
    issue.add_argument("name", help="of the node")
    renew.add_argument("name", help="of the node")
    revoke.add_argument("name", nargs="*", help="of a node; none: the list is made anew, with what it had")
    issue.add_argument("--host", action="append", default=[], help="a name or address it is reached at")
    issue.add_argument("--group", action="append", default=[], help="a group that rules can name")
    authority.add_argument("--days", type=whole, default=3650, help="for how long it is good (default: %(default)s)")
    issue.add_argument("--days", type=whole, default=365, help="for how long it is good (default: %(default)s)")

    renew.add_argument("--days", type=whole, default=365, help="for how long it is good (default: %(default)s)")
    revoke.add_argument("--days", type=whole, default=30, help="for how long the list is good (default: %(default)s)")

    def run(args: argparse.Namespace) -> int:
        from headwater.federation.command import command

        if args.what == "authority":
            return command.authority(args.folder, days=args.days)
        if args.what == "renew":
            return command.renewal(args.folder, args.name, days=args.days)
        if args.what == "revoke":
            return command.revocation(args.folder, args.name, days=args.days)
        return command.certificate(args.folder, args.name, hosts=args.host, groups=args.group, days=args.days)

    sub.set_defaults(run=run)


def _comparing(engine: str) -> Any:
    """What compares two versions of an interest on a log: this process, or a Spark of its own."""

    def run(log: str, *sides: Any, **more: Any) -> Any:
        from headwater.spark.backtest.comparison import compare
        from headwater.spark.backtest.engine import session_of

        with session_of(engine, None, None) as spark:
            return compare(spark, log, *sides, **more)

    return run


def _add_joining(sub: argparse.ArgumentParser, *, config: bool = False) -> None:
    group = sub.add_argument_group("the federation")
    group.add_argument("--name", help="of the node")
    group.add_argument("--connect", action="append", default=[], metavar="ENDPOINT",
                       help="of a node, as in 127.0.0.1:7447; may be given again")  # fmt: skip
    group.add_argument("--listen", action="append", default=[], metavar="ENDPOINT",
                       help="where others may connect; may be given again")  # fmt: skip
    group.add_argument("--scout", nargs="?", const=True, default=False, metavar="GROUP", help="find nodes by multicast")
    group.add_argument("--federation", help="its name (default: headwater)")
    group.add_argument("--security", type=Path, metavar="FILE", help="TOML: certificates, users, rules")
    if config:
        group.add_argument("--config", type=Path, metavar="FILE", help="TOML: a node's settings, with a table network")
        group.add_argument("--state", type=Path, metavar="FILE", help="where its key is kept")
    else:
        group.add_argument("--wait", type=seconds, default=10.0, help="seconds for others to answer (%(default)s)")


def _joining(args: argparse.Namespace) -> Any:
    from headwater.federation.command.command import Joining

    return Joining(
        name=args.name or (f"{args.command}-{os.getpid()}" if args.command != "node" else None),
        listen=tuple(args.listen),
        connect=tuple(args.connect),
        scout=args.scout,
        federation=args.federation,
        security=args.security,
        config=getattr(args, "config", None),
        state=getattr(args, "state", None),
        router=getattr(args, "router", None),
    )


# ── interests and types ──


def _text(args: argparse.Namespace) -> str:
    if (args.interest is None) == (args.file is None):
        raise UsageError("expected an interest or --file, and not both")
    if args.file is None:
        return str(args.interest)
    if str(args.file) == "-":
        return sys.stdin.read()
    try:
        return str(args.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file {args.file}: {error}") from None


def _infer(text: str, args: argparse.Namespace, params: dict[str, object]) -> EventType:
    """Without a type, guess one from how the fields are used; only predicate text says enough for that."""
    if not _is_predicate(text, args):
        raise UsageError("expected --type: only predicate text can be explained without an event type")
    from headwater.lang.infer import infer_record

    record = infer_record(text, params)
    if not record.fields:
        raise UsageError("expected --type: the interest names no field from which to guess one")
    return event_type(record)


def _reads_as_pattern(text: str) -> bool:
    """Whether a text that is no interest says a pattern, whose channels were forgotten."""
    from headwater.patterns.pattern import readable

    return readable(text)


def _is_predicate(text: str, args: argparse.Namespace) -> bool:
    return args.notation == "predicate" or (
        args.notation is None and not text.lstrip().startswith(("{", "/*", "//", "def ", "lambda"))
    )


def load_type(spec: str) -> EventType:
    """An event type by name, from a file, or declared on the spot."""
    path = Path(spec)
    if path.suffix in (".parquet", ".arrow", ".feather", ".ipc") or path.is_file():
        return _type_of_file(path)
    named = re.fullmatch(r"([\w./\\-]+):([^\W\d]\w*)", spec)
    if named and named[2] not in SCALARS:  # `level:f64` declares a field
        return _type_of_module(named[1], named[2])
    return as_event_type(spec)


def _type_of_file(path: Path) -> EventType:
    try:
        if path.suffix == ".parquet":
            schema = pq.read_schema(path)
        else:
            with pa.memory_map(str(path)) as source:
                try:
                    schema = pa.ipc.open_file(source).schema
                except pa.ArrowInvalid:
                    source.seek(0)
                    schema = pa.ipc.open_stream(source).schema
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"--type {path}: not a readable Arrow or Parquet file: {error}") from None
    return EventType.from_arrow_schema(schema, name=path.stem)


def _type_of_module(module_name: str, class_name: str) -> EventType:
    try:
        if module_name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(module_name).stem, module_name)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, "")
            module = importlib.import_module(module_name)
    except Exception as error:  # whatever a module does when it is imported
        raise UsageError(f"--type {module_name}:{class_name}: {error.__class__.__name__}: {error}") from None
    found = getattr(module, class_name, None)
    if found is None:
        names = sorted(n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__)
        raise UsageError(
            f"--type: module {module_name!r} has no {class_name!r}; it has {', '.join(names) or 'no classes'}"
        )
    return event_type(found)


if __name__ == "__main__":
    sys.exit(main())
