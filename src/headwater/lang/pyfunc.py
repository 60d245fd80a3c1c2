"""A Python function or lambda as an interest: taken from its source, never executed.

    def loud(e, *, limit=0.5, state=State(n=0)):
        state.n += 1
        return e.level > limit and state.n % 2 == 0

The first parameter is the event, a second one the output event; keyword-only parameters are the interest's own, and one
with a `State` for its default is its state. docs/notations/python.md lists what may stand inside.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headwater.errors import HeadwaterError, InterestError, InterestRefused, ParameterError
from headwater.ir.build import Builder
from headwater.ir.nodes import Expr, ParamDecl, Program, Span
from headwater.ir.notes import is_bad
from headwater.ir.params import bind, declare
from headwater.lang.pyconst import NotConstant, State, constant, plain
from headwater.lang.pyexpr import Names, enumerations
from headwater.lang.pyrecovery import Recovery
from headwater.lang.pysource import Source, read
from headwater.lang.pystmt import Statements
from headwater.lang.source import too_deep
from headwater.types.model import F64, I64, Record, Type

__all__ = ["ParsedFunction", "State", "parse"]


@dataclass(frozen=True)
class ParsedFunction:
    """The program of a function, and its parameters' values: the defaults, and what was given in their place."""

    program: Program
    params: dict[str, object] = field(default_factory=dict)


def parse(
    function_or_source: Callable[..., Any] | str,
    input: Record,
    *,
    output: Record | None = None,
    params: Mapping[str, object] | None = None,
    declared: Iterable[ParamDecl] = (),
    builder: type[Builder] = Builder,
) -> ParsedFunction:
    """The program of a function over events of type `input`, or an InterestError with every problem in it.

    `declared` has parameters whose types are known better than from their values.
    `builder` decides what the function's results become: a verdict, or with `ir.value.ValueBuilder` a number."""
    known = {decl.name: decl for decl in declared}

    def parsed(source: Source) -> ParsedFunction:
        b = builder(input, output=output, text=source.text, notation="python")
        return _Function(source, b, dict(params or {}), known).parsed()

    try:
        source = read(function_or_source)
    except InterestRefused:
        raise
    except InterestError as error:
        raise _with_others(error, function_or_source, parsed) from None
    try:
        return parsed(source)
    except RecursionError:
        raise too_deep(source.text, Span(0, len(source.text))) from None


def _with_others(error: InterestError, text: object, parsed: Callable[[Source], ParsedFunction]) -> InterestError:
    """A syntax error, and what else is wrong: the line that it is in is left out, and the rest looked at."""
    recovery = Recovery(text, error.problems[0]) if isinstance(text, str) else None
    if recovery is None or recovery.source is None:
        return error
    try:
        parsed(recovery.source)
    except InterestRefused:
        return error
    except InterestError as other:
        more = [problem for problem in other.problems if not recovery.explains(problem)]
        return InterestError(sorted({*error.problems, *more}, key=lambda problem: (problem.line, problem.column)))
    except (HeadwaterError, RecursionError):
        return error
    return error


class _Function(Statements):
    """Walks the signature, then the body."""

    def __init__(
        self, source: Source, builder: Builder, given: dict[str, object], declared: dict[str, ParamDecl]
    ) -> None:
        super().__init__(source, builder, Names(enums=enumerations(builder.input, builder.output)))
        self.given, self.declared = given, declared
        self.values: dict[str, object] = {}

    def parsed(self) -> ParsedFunction:
        node = self.source.node
        self._signature(node.args)
        self.b.push_scope()
        if isinstance(node, ast.Lambda):
            body = self.returned(node.body)
        else:
            self._check_definition(node)
            body = self.definition(node.body)
        program = self.b.finish(body)
        return ParsedFunction(program, self.values)

    # ── the signature ──

    def _check_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if isinstance(node, ast.AsyncFunctionDef):
            self.problem(node, "async def is not possible here", hint="use def")
        if self.source.function is None:
            for decorator in node.decorator_list:
                self.problem(decorator, "a decorator is not possible here", hint="leave it out")

    def _signature(self, args: ast.arguments) -> None:
        """Which parameters are the event, the output and the state, and which are parameters of the interest; what a
        signature may not have is a problem."""
        positional = [*args.posonlyargs, *args.args]
        positional[1:] = [arg for arg in positional[1:] if not self._is_known(arg)]
        for star in (args.vararg, args.kwarg):
            if star is not None:
                self.problem(star, "starred parameters are not possible here", hint="name each one after a bare *")
        mistaken = len(positional) > 1 and self.b.output is None  # a parameter, most likely
        for default in args.defaults[: len(args.defaults) - mistaken]:
            self.problem(default, "the event has no default", hint="parameters come after a bare *: def f(e, *, x=0.5)")
        if not positional:
            expected = "def f(e), with the event first"
            self.problem(self.source.node, "the function has no parameter for the event", expected=expected)
        if len(positional) > 2:
            self.problem(positional[2], "only the event and the output are given by position",
                         hint="parameters come after a bare *: def f(e, *, x=0.5)")  # fmt: skip
        if positional:
            self.names.event = positional[0].arg
        if mistaken:
            name = positional[1].arg
            after = f"a parameter comes after a bare *: def f(e, *, {name}=…); for a transformation give an output type"
            self.names.aliases[name] = self.problem(positional[1], "a filter has no output", hint=after)
        elif len(positional) > 1:
            self.names.out = positional[1].arg
        unknown = [name for name in self.given if name not in {arg.arg for arg in args.kwonlyargs}]
        if unknown:
            hint = self.b.suggest(unknown[0], [arg.arg for arg in args.kwonlyargs], "its parameters are")
            raise ParameterError(
                f"no parameter {unknown[0]!r}: {hint or f'add it to the signature: def f(e, *, {unknown[0]}=…)'}"
            )
        for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            self._parameter(arg, value)

    def _is_known(self, arg: ast.arg) -> bool:
        """Whether the builder knows what an argument after the event is."""
        meant = self.b.argument(arg.arg, self.source.span(arg)) if self.b.output is None else None
        if meant is None:
            return False
        self.names.aliases[arg.arg] = meant
        self.names.assigned[arg.arg] = 1
        return True

    def _parameter(self, arg: ast.arg, node: ast.expr | None) -> None:
        """A keyword-only parameter: of the interest, or its state."""
        name, known, value = arg.arg, False, None
        if node is not None:
            if self.source.defaults is not None:
                known, value = name in self.source.defaults, self.source.defaults.get(name)
            else:
                try:
                    known, value = True, constant(node, self.source)
                except NotConstant as error:
                    self.problem(error.node, str(error), expected="a constant for a default", hint=error.hint)
                    self.names.aliases[name] = self._bad(arg)
                    return
        if isinstance(value, State):
            self._declare_state(name, value, node or arg)
            return
        decl: ParamDecl | None = None
        if known:
            try:
                decl = declare({name: value})[0]
                self.values[name] = value
            except ParameterError as error:
                if name not in self.given:
                    self.problem(node or arg, str(error))
        elif name not in self.given:
            self.problem(arg, f"parameter {name!r} has no value", hint=f"give it a default, or params={{{name!r}: …}}")
        if name in self.given:
            decl = decl or declare({name: self.given[name]})[0]
            if self.b.settled:
                bind((self.declared.get(name, decl),), {name: self.given[name]})
            self.values[name] = self.given[name]
        if decl is None:
            self.names.aliases[name] = self._bad(arg)
        else:
            self.b.params[name] = self.declared.get(name, decl)

    def _declare_state(self, name: str, state: State, node: Any) -> None:
        span = self.source.span(node)
        slots: dict[str, int] = {}
        self.names.states[name] = slots
        if name in self.given:
            raise ParameterError(f"{name!r} is state, not a parameter: it starts at the values in its State(…)")
        for key, value in vars(state).items():
            shape, flat = _shape(value)
            consts = [self.b.const(plain(v), span) if _is_state(v) else self._not_state(node, key, v) for v in flat]
            if any(map(is_bad, consts)):
                self.names.aliases[name] = consts[0]
                continue
            if not consts or len({const.type for const in consts} - {I64, F64}) > (consts[0].type not in (I64, F64)):
                self.problem(node, f"the array {key!r} of the state", expected="one or more values of one kind")
                continue
            type: Type = F64 if any(const.type == F64 for const in consts) else consts[0].type
            slot = self.b.declare(key, type, span, shape=shape, state=True, init=consts)
            if slot is not None:
                slots[key] = slot

    def _not_state(self, node: Any, key: str, value: object) -> Expr:
        expected = "a number, boolean, aware datetime, or a list of numbers of one length in each dimension"
        return self.problem(node, f"state {key!r} cannot hold this", expected=expected, found=type(value).__name__)


def _is_state(value: object) -> bool:
    return isinstance(value, bool | int | float | datetime)


def _shape(value: object) -> tuple[tuple[int, ...], list[Any]]:
    """The dimensions and elements of nested lists; uneven ones come out as one element that is a list."""
    if not isinstance(value, list | tuple):
        return (), [value]
    parts = [_shape(item) for item in value]
    if any(shape != parts[0][0] for shape, _ in parts):
        return (), [value]
    return (len(value), *(parts[0][0] if parts else ())), [item for _, flat in parts for item in flat]
