"""Reading the serial form: from bytes of anyone to a verified program. See `serial.py` for the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from headwater.errors import SerialError, TypeDeclarationError
from headwater.ir import encode
from headwater.ir.build import MAX_ELEMENTS, inside
from headwater.ir.functions import FUNCTIONS
from headwater.ir.nodes import (
    META_TYPES,
    Assign,
    AssignElem,
    Binary,
    Block,
    Break,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Continue,
    CopyOut,
    Elem,
    Expr,
    If,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Loop,
    Meta,
    Missing,
    Param,
    ParamDecl,
    Path,
    Program,
    Reduce,
    Return,
    SetOut,
    Stmt,
    Unary,
    Var,
    Variable,
)
from headwater.ir.notes import MAX_LEVELS, MAX_NODES, MAX_TEXT
from headwater.ir.verify import MAX_NAME, MAX_NESTING, verify
from headwater.types.layout import MAX_DEPTH as MAX_TYPE_DEPTH
from headwater.types.model import (
    F64,
    I64,
    SCALARS,
    TIMESTAMP,
    Array,
    Enum,
    Field,
    List,
    Record,
    Scalar,
    Type,
    promote,
)

MAX_SIZE = 2 << 20
MAX_TYPES = 4_096
MAX_FIELDS = 65_536  # of one type, those of types inside it and members of enumerations included


def decode(data: bytes) -> Program:
    """The verified program, or SerialError."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SerialError(f"expected bytes, found {data.__class__.__name__}")
    if len(data) > MAX_SIZE:
        raise SerialError(f"expected at most {MAX_SIZE:,} bytes, found {len(data):,}")
    data = bytes(data)
    if encode.has_too_many_parts(data):
        raise SerialError(f"not the serial form of an interest: expected at most {encode.MAX_PARTS:,} parts")
    try:
        form = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as wrong:
        raise SerialError(f"not the serial form of an interest: {wrong}") from None
    try:
        program = _Decoder().program(form)
        verify(program)
    except TypeDeclarationError as wrong:
        raise SerialError(f"not the serial form of an interest: {wrong}") from None
    except RecursionError:
        raise SerialError("not the serial form of an interest: it nests too deeply") from None
    return program


def _wrong(what: str) -> NoReturn:
    raise SerialError(f"not the serial form of an interest: expected {what}")


def _list(x: Any, what: str, *, length: int | None = None, most: int = 65_536) -> list[Any]:
    if x.__class__ is not list:
        _wrong(what)
    items: list[Any] = x
    if len(items) > most or (length is not None and len(items) != length):
        _wrong(f"{what} of {length if length is not None else f'at most {most}'} parts")
    return items


def _int(x: Any, what: str, below: int) -> int:
    if x.__class__ is not int or not 0 <= x < below:
        _wrong(f"{what} below {below}")
    return int(x)


def _str(x: Any, what: str) -> str:
    if x.__class__ is not str or not 0 < len(x) <= MAX_NAME:
        _wrong(f"{what} of 1 to {MAX_NAME} characters")
    return str(x)


def _bool(x: Any, what: str) -> bool:
    if x.__class__ is not bool:
        _wrong(what)
    return bool(x)


class _Decoder:
    def __init__(self) -> None:
        self.table: list[Type] = []
        self.known: dict[object, Type] = {}  # equal types are one object, so that comparing them costs nothing
        self.sizes: list[tuple[int, int]] = []  # of each type in the table: fields and members in all, and depth
        self.nodes = self.initial = 0

    def program(self, form: object) -> Program:
        """A program from its serial form, with nothing relied on: sizes and numbers are checked here, types and places
        by `verify`."""
        parts = _list(form, "a program")
        if not parts or parts[0] != encode.VERSION or parts[0].__class__ is not int:
            found = repr(parts[0])[:20] if parts else "nothing"
            raise SerialError(f"the serial form of an interest: expected version {encode.VERSION}, found {found}")
        if len(parts) not in (7, 9):
            _wrong("7 or 9 parts")
        _, types, input, output, params, variables, body, *texts = parts
        for entry in _list(types, "types", most=MAX_TYPES):
            self.composite(entry)
        self.input = self.record(input)
        self.output = None if output is None else self.record(output)
        self.params = [self.param(entry) for entry in _list(params, "parameters", most=1_000)]
        self.variables = [self.variable(entry) for entry in _list(variables, "variables", most=1_000)]
        block = self.block(body, 0)
        for text in texts:
            if text.__class__ is not str or len(text) > MAX_TEXT:
                _wrong(f"text of at most {MAX_TEXT} characters")
        if texts and texts[0] not in encode.NOTATIONS:
            _wrong(f"a notation: {', '.join(encode.NOTATIONS[1:])}")
        return Program(self.input, self.output, tuple(self.params), tuple(self.variables), block, *texts)

    # ── types ──

    def type(self, code: object) -> Type:
        at = _int(code, "a type", encode.TABLE_START + len(self.table))
        if at < len(encode.SCALAR_CODES):
            return SCALARS[encode.SCALAR_CODES[at]]
        if at < encode.TABLE_START:
            _wrong("a type")
        return self.table[at - encode.TABLE_START]

    def size(self, code: int) -> tuple[int, int]:
        return self.sizes[code - encode.TABLE_START] if code >= encode.TABLE_START else (1, 1)

    def record(self, code: object) -> Record:
        type = self.type(code)
        if not isinstance(type, Record):
            _wrong("a record type")
        return type

    def composite(self, entry: object) -> None:
        """Take in one enumeration, array, list or record; later ones refer to it by number. How deep and large they
        become together is limited."""
        parts = _list(entry, "a type")
        made: Type
        key: object
        inner = [(0, 0)]
        match _int(parts[0] if parts else None, "a kind of type", 4):
            case 0:
                _, name, names, codes = _list(parts, "an enumeration", length=4)
                names = [_str(n, "a member's name") for n in _list(names, "members", most=MAX_FIELDS)]
                codes = _list(codes, "codes", length=len(names))
                if any(code.__class__ is not int for code in codes):
                    _wrong("integer codes")
                made = Enum(_str(name, "a name"), tuple(zip(names, codes, strict=True)))
                key = made
                inner = [(len(names), 0)]
            case 1:
                _, element, shape = _list(parts, "an array", length=3)
                sizes = tuple(_int(n, "a dimension", 1 << 31) for n in _list(shape, "a shape", most=16))
                made = Array(self.type(element), sizes)
                key = (id(made.element), sizes)
                inner = [self.size(element)]
            case 2:
                _, element = _list(parts, "a list", length=2)
                made = List(self.type(element))
                key = id(made.element)
                inner = [self.size(element)]
            case _:
                _, name, entries = _list(parts, "a record", length=3)
                fields = [_list(field, "a field", length=3) for field in _list(entries, "fields", most=MAX_FIELDS)]
                made = Record(_str(name, "a name"), tuple(map(self.field, fields)))
                key = (name, tuple((field.name, id(field.type), field.optional) for field in made.fields))
                inner = [self.size(field[1]) for field in fields] or inner
        size, depth = 1 + sum(size for size, _ in inner), 1 + max(depth for _, depth in inner)
        if size > MAX_FIELDS or depth > MAX_TYPE_DEPTH:  # records within records multiply
            _wrong(f"types of at most {MAX_FIELDS} fields, nested at most {MAX_TYPE_DEPTH} deep")
        self.table.append(self.known.setdefault(key, made))
        self.sizes.append((size, depth))

    def field(self, entry: list[Any]) -> Field:
        name, type, optional = entry
        return Field(_str(name, "a field's name"), self.type(type), _bool(optional, "optional or not"))

    # ── declarations ──

    def param(self, entry: object) -> ParamDecl:
        name, kind, type, value = _list(entry, "a parameter", length=4)
        kinds = encode.PARAM_KINDS
        of = None if value is None else self.type(value)
        return ParamDecl(_str(name, "a name"), kinds[_int(kind, "a kind", len(kinds))], self.type(type), of)  # type: ignore[arg-type]

    def variable(self, entry: object) -> Variable:
        name, code, shape, state, init = _list(entry, "a variable", length=5)
        type = self.type(code)
        sizes = tuple(_int(n, "a dimension", 1 << 31) for n in _list(shape, "a shape", most=16))
        values = _list(init, "initial values")
        self.initial += len(values)
        if self.initial > MAX_ELEMENTS:
            _wrong(f"at most {MAX_ELEMENTS} initial values")
        promoted = promote(type)
        consts = tuple(Const(value, promoted) for value in values)
        return Variable(_str(name, "a name"), type, sizes, _bool(state, "state or not"), consts)

    # ── statements ──

    def block(self, form: object, nesting: int) -> Block:
        if nesting > MAX_NESTING:
            _wrong(f"statements nested at most {MAX_NESTING} deep")
        return tuple(self.stmt(stmt, nesting + 1) for stmt in _list(form, "a block"))

    def stmt(self, form: object, nesting: int) -> Stmt:
        """A statement from its list."""
        tag, *parts = self.node(form, len(encode.STATEMENTS))
        if len(parts) != (2, 3, 2, 2, 3, 3, 0, 0, 1)[tag]:
            _wrong("another number of parts in a statement")
        match tag:
            case 0:
                return Assign(self.slot(parts[0]), self.expr(parts[1], 0))
            case 1:
                return AssignElem(self.slot(parts[0]), self.exprs(parts[1], 0), self.expr(parts[2], 0))
            case 2:
                path, stored = self.path(parts[0], self.target(), 0)
                if isinstance(stored, Array | List | Record):
                    return SetOut(path, self.missing(parts[1], stored), stored)
                return SetOut(path, self.expr(parts[1], 0), stored)
            case 3:
                path, stored = self.path(parts[0], self.target(), 0)
                return CopyOut(path, self.path(parts[1], self.input, 0)[0], stored)
            case 4:
                return If(self.expr(parts[0], 0), self.block(parts[1], nesting), self.block(parts[2], nesting))
            case 5:
                return Loop(self.expr(parts[0], 0), self.block(parts[1], nesting), self.block(parts[2], nesting))
            case 6:
                return Break()
            case 7:
                return Continue()
            case _:
                return Return(self.expr(parts[0], 0))

    def target(self) -> Record:
        if self.output is None:
            _wrong("an output type")
        return self.output

    def missing(self, form: object, stored: Type) -> Expr:
        tag, *parts = self.node(form, len(encode.EXPRESSIONS))
        if tag != 1 or len(parts) != 1 or self.type(parts[0]) != stored:
            _wrong("a missing value")
        return Missing(stored)

    # ── expressions ──

    def node(self, form: object, tags: int) -> list[Any]:
        parts = _list(form, "a node")
        self.nodes += 1
        if self.nodes > MAX_NODES:
            _wrong(f"at most {MAX_NODES} nodes")
        _int(parts[0] if parts else None, "a tag", tags)
        return parts

    def slot(self, slot: object) -> int:
        return _int(slot, "a variable", len(self.variables))

    def path(self, form: object, start: Type, depth: int) -> tuple[Path, Type]:
        here = start
        steps: list[str | Expr] = []
        for step in _list(form, "a path", most=64):
            if step.__class__ is int:
                if not isinstance(here, Record):
                    _wrong("a record here")
                field = here.fields[_int(step, "a field", len(here.fields))]
                steps.append(field.name)
                here = field.type
            else:
                if not isinstance(here, Array | List):
                    _wrong("an array or list here")
                steps.append(self.expr(step, depth))
                here = inside(here)
        return Path(tuple(steps)), here

    def exprs(self, form: object, depth: int) -> tuple[Expr, ...]:
        return tuple(self.expr(part, depth) for part in _list(form, "expressions", most=MAX_NODES))

    def expr(self, form: object, depth: int) -> Expr:
        tag, *parts = self.node(form, len(encode.EXPRESSIONS))
        if depth >= MAX_LEVELS:
            _wrong(f"expressions nested at most {MAX_LEVELS} deep")
        arity, make = _MAKERS[tag]
        if len(parts) != arity:
            _wrong(f"{arity} parts in a {encode.EXPRESSIONS[tag].__name__}")
        made: Expr = make(self, parts, depth + 1)
        return made

    def load(self, parts: list[Any], depth: int) -> Expr:
        path, stored = self.path(parts[0], self.input, depth)
        return Load(path, stored, promote(stored))

    def param_of(self, at: object) -> ParamDecl:
        return self.params[_int(at, "a parameter", len(self.params))]

    def unary(self, parts: list[Any], depth: int) -> Expr:
        a = self.expr(parts[1], depth)
        return Unary(_op(parts[0], encode.UNARY_OPS), a, a.type)

    def binary(self, parts: list[Any], depth: int) -> Expr:
        a, b = self.expr(parts[1], depth), self.expr(parts[2], depth)
        return Binary(_op(parts[0], encode.BINARY_OPS), a, b, I64 if a.type == b.type == TIMESTAMP else a.type)

    def cond(self, parts: list[Any], depth: int) -> Expr:
        test, then, other, neither = (self.expr(part, depth) for part in parts)
        return Cond(test, then, other, neither, then.type)

    def cast(self, parts: list[Any], depth: int) -> Expr:
        to = self.type(parts[0])
        return Cast(self.expr(parts[1], depth), to, promote(to))

    def call(self, parts: list[Any], depth: int) -> Expr:
        args = self.exprs(parts[1], depth)
        function = FUNCTIONS.get(_str(parts[0], "a function"))
        if function is None or not args:
            _wrong("a function of the library")
        return Call(function.name, args, args[0].type if function.result == "same" else Scalar(function.result))

    def in_set(self, parts: list[Any], depth: int) -> Expr:
        a = self.expr(parts[0], depth)
        values = _list(parts[1], "members", most=MAX_NODES)
        self.nodes += len(values)
        name = None if parts[2] is None else self.param_of(parts[2]).name
        return InSet(a, tuple(Const(value, a.type) for value in values), name)

    def lookup(self, parts: list[Any], depth: int) -> Expr:
        param = self.param_of(parts[0])
        if param.value is None:
            _wrong("a map parameter")
        return Lookup(param.name, self.expr(parts[1], depth), param.value)

    def reduce(self, parts: list[Any], depth: int) -> Expr:
        op = _op(parts[0], encode.REDUCE_OPS)
        path, stored = self.path(parts[1], self.input, depth)
        element = promote(stored.element) if isinstance(stored, Array | List) else stored
        return Reduce(op, path, stored, I64 if op == "len" else F64 if op == "mean" else element)

    def elem(self, parts: list[Any], depth: int) -> Expr:
        slot = self.slot(parts[0])
        return Elem(slot, self.exprs(parts[1], depth), promote(self.variables[slot].type))

    def var(self, parts: list[Any]) -> Expr:
        slot = self.slot(parts[0])
        return Var(slot, promote(self.variables[slot].type))

    def scalar_param(self, parts: list[Any]) -> Expr:
        param = self.param_of(parts[0])
        return Param(param.name, param.type)

    def meta(self, parts: list[Any]) -> Expr:
        name = _op(parts[0], encode.META_NAMES)
        return Meta(name, META_TYPES[name])


def _op(code: object, names: tuple[str, ...]) -> Any:
    return names[_int(code, "an operator", len(names))]


_MAKERS: tuple[tuple[int, Callable[[_Decoder, list[Any], int], Expr]], ...] = (
    (2, lambda d, p, _: Const(p[1], d.type(p[0]))),
    (1, lambda d, p, _: Missing(d.type(p[0]))),
    (1, _Decoder.load),
    (1, lambda d, p, _: d.var(p)),
    (2, _Decoder.elem),
    (1, lambda d, p, _: d.scalar_param(p)),
    (1, lambda d, p, _: d.meta(p)),
    (2, _Decoder.unary),
    (3, _Decoder.binary),
    (3, lambda d, p, n: Compare(_op(p[0], encode.COMPARE_OPS), d.expr(p[1], n), d.expr(p[2], n))),
    (2, lambda d, p, n: Logic(_op(p[0], encode.LOGIC_OPS), d.exprs(p[1], n))),
    (4, _Decoder.cond),
    (1, lambda d, p, n: IsMissing(d.expr(p[0], n))),
    (2, _Decoder.cast),
    (2, _Decoder.call),
    (3, _Decoder.in_set),
    (2, _Decoder.lookup),
    (2, _Decoder.reduce),
)
