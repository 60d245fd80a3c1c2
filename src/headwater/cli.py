"""The `headwater` command."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.explain import explain
from headwater.interest import NOTATIONS, Interest, as_event_type
from headwater.types import EventType, event_type
from headwater.types.model import SCALARS

EXAMPLES = """\
examples:
  headwater explain "level > 0.5 and network == 'ORL-Net#1'" --type 'level: f32, network: text'
  headwater explain "level > :limit" --type mymodule:Sighting --param limit=0.5
  headwater explain --file filter.c --notation ecode --type recording.parquet --asm
"""


class UsageError(Exception):
    """Something on the command line is off."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="headwater",
        description="A distributed, typed event service in which interest travels to the event.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    _add_explain(commands)
    args = parser.parse_args(argv)
    try:
        result: int = args.run(args)
    except (HeadwaterError, UsageError) as error:
        print(f"headwater {args.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
    return result


def _add_explain(commands: Any) -> None:
    sub = commands.add_parser(
        "explain",
        help="show what an interest means, costs and becomes",
        description="Show what an interest means, what it costs and what it becomes in each execution.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("interest", nargs="?", help="the interest; or use --file")
    sub.add_argument("--file", type=Path, help="read the interest from a file (- for standard input)")
    sub.add_argument("--type", help="the event type: module:Class, file.py:Class, an Arrow or Parquet file, or its "
                     "fields, as in 'level: f32, network: text?'")  # fmt: skip
    sub.add_argument("--output", help="the output type of a transformation, written like --type")
    sub.add_argument("--notation", choices=NOTATIONS, help="default: E-Code if it starts with {, Python if it starts "
                     "with def or lambda, else predicate text")  # fmt: skip
    sub.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter: a number, text, "
                     "true, false, or JSON; a JSON list is a set, a JSON object a map")  # fmt: skip
    sub.add_argument("--asm", action="store_true", help="show the machine code")
    sub.add_argument("--llvm", action="store_true", help="show the LLVM IR")
    sub.set_defaults(run=_explain)


def _explain(args: argparse.Namespace) -> int:
    text = _text(args)
    params = dict(_param(item) for item in args.param)
    if args.type is None:
        on = _infer(text, args, params)
    else:
        on = load_type(args.type)
    output = load_type(args.output) if args.output else None
    if output is not None and _is_predicate(text, args):
        raise UsageError("--output: predicate text can only filter; write a transformation in E-Code or Python")
    interest = Interest(text, on, output=output, params=params, notation=args.notation)
    print(explain(interest, asm=args.asm, llvm=args.llvm))
    return 0


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


def _is_predicate(text: str, args: argparse.Namespace) -> bool:
    return args.notation == "predicate" or (
        args.notation is None and not text.lstrip().startswith(("{", "/*", "//", "def ", "lambda"))
    )


def _param(item: str) -> tuple[str, object]:
    name, equals, value = item.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--param {item!r}: expected NAME=VALUE")
    try:
        parsed: object = json.loads(value)
    except ValueError:
        return name, value
    if not isinstance(parsed, list):
        return name, parsed
    if any(isinstance(item, list | dict) for item in parsed):
        raise UsageError(f"--param {item!r}: expected a list of plain values, which is a set")
    return name, frozenset(parsed)


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
    import pyarrow as pa
    import pyarrow.parquet as pq

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
