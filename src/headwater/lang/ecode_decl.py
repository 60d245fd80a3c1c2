"""E-Code's declarations: locals, arrays with initial values, and `static` variables, which are state.

Locals are declared to the builder and assigned where they stand; state starts at constants that are folded here.
"""

from __future__ import annotations

import math

from pycparser import c_ast

from headwater.ir.build import Builder
from headwater.ir.nodes import Expr, Span, Stmt
from headwater.ir.notes import is_bad
from headwater.lang.ecode_expr import RESERVED, Expressions
from headwater.lang.ecode_text import Source
from headwater.lang.ecode_types import Ast, fold, is_constant, spoken
from headwater.types.model import BYTES, I64, TEXT, Enum, Type

MAX_DIMENSIONS = 8
_UNROLLED = 32  # an array's rest is set to zero element by element up to here, and by a loop beyond


class Declarations(Expressions):
    """Lowers declarations. `constants` are the slots of const variables."""

    def __init__(self, source: Source, builder: Builder) -> None:
        super().__init__(source, builder)
        self.constants: set[int] = set()
        self._hidden = 0

    def declare(self, node: Ast) -> list[Stmt]:
        """The statements of a declaration: the variable is known from here on, and what it begins with is assigned.
        What is static becomes state."""
        if node.name is None:
            self.b.problem(self.span(node), f"{spoken(node.type)} is not E-Code")
            return []
        span = Span(self.start(node), self.start(node) + len(node.name))
        kind, dims = self.type_of(node.type, span)
        if not self.source.text.startswith(node.name, span.start):  # a pointer's place is its star
            start = max(0, self.source.code.find(node.name, span.start))
            span = Span(start, start + len(node.name))
        if node.name in RESERVED:
            self.b.problem(span, f"{node.name!r} is the event's own name", hint="choose another")
            return []
        for storage in node.storage:
            if storage not in ("static", "register", "auto"):
                self.b.problem(span, f"{storage} is not E-Code", hint="use static for what outlives an event")
        if node.bitsize is not None:
            self.b.problem(span, "bit fields are not E-Code")
        shape = self._shape(dims, node.init, span)
        if kind is None or shape is None:
            self._forget(node.name, span)
            return []
        items = self._items(node.init, shape, span)
        slot: int | None
        if "static" in node.storage:
            slot = self._state(node.name, kind, shape, items, span)
            stmts: list[Stmt] = []
        elif shape or items is None:
            slot = self.b.declare(node.name, kind, span, shape=shape)
            stmts = self._fill(slot, kind, shape, items, span) if slot is not None and items else []
        else:  # as in C the name is already the new variable in its own initial value, and still missing there
            slot = self.b.declare(node.name, kind, span)
            self.declaring = node.name
            value = self.expr(items[0][1], kind) if items else None
            self.declaring = None
            stmts = self.b.assign(slot, value, Span(span.start, value.span.end)) if slot is not None and value else []
        if slot is not None and _is_const(node):
            self.constants.add(slot)
        return stmts

    def _forget(self, name: str, span: Span) -> None:
        """Declare a faulty variable all the same, so that its uses are not reported too."""
        if self.b.find(name) is None:
            self.b.declare(name, I64, span)

    def _shape(self, dims: list[Ast], init: Ast, span: Span) -> tuple[int, ...] | None:
        """The dimensions of an array, which must be constants; the first may follow from the initialiser."""
        if len(dims) > MAX_DIMENSIONS:
            self.b.problem(span, f"an array of {len(dims)} dimensions", expected=f"at most {MAX_DIMENSIONS}")
            return None
        sizes: list[int] = []
        for dim in dims[1:] if dims and dims[0] is None else dims:
            if dim is None:
                self.b.problem(span, "only the first dimension can be left open")
                return None
            value = self.expr(dim)
            size = fold(value)
            if is_bad(value):
                return None
            if size is None or isinstance(size.value, bool) or not isinstance(size.value, int) or size.value < 1:
                hint = "declare the greatest size that is needed"
                expected = "a constant of 1 or more"
                self.b.problem(value.span, "the size of an array", expected=expected, hint=hint)
                return None
            sizes.append(size.value)
        if dims and dims[0] is None:
            if not isinstance(init, c_ast.InitList) or not init.exprs:
                self.b.problem(span, "an array needs a size or values", hint="a text is declared char * or text")
                return None
            nested = isinstance(init.exprs[0], c_ast.InitList)
            sizes.insert(0, len(init.exprs) if nested else -(-len(init.exprs) // math.prod(sizes)))
        return tuple(sizes)

    def _items(self, init: Ast, shape: tuple[int, ...], span: Span) -> list[tuple[int, Ast]] | None:
        """Initial values with their places in row order; None where there are none."""
        if init is None:
            return None
        if not shape:
            if isinstance(init, c_ast.InitList):
                if len(init.exprs or ()) != 1:
                    self.b.problem(span, "initial values", expected="one", found=str(len(init.exprs or ())))
                    return []
                init = init.exprs[0]
            return [(0, init)]
        if not isinstance(init, c_ast.InitList):
            hint = "a text is declared char * or text" if isinstance(init, c_ast.Constant) else None
            self.b.problem(span, "initial values of an array", expected="a list in braces, e.g. {0}", hint=hint)
            return []
        found: list[tuple[int, Ast]] = []
        self._collect(init, shape, 0, found)
        return found

    def _collect(self, init: Ast, shape: tuple[int, ...], base: int, found: list[tuple[int, Ast]]) -> None:
        inner, at = math.prod(shape[1:]), 0
        for item in init.exprs or ():
            span = self.span(item.expr if isinstance(item, c_ast.NamedInitializer) else item)
            if at >= inner * shape[0]:
                self.b.problem(span, "more initial values than elements", expected=str(inner * shape[0]))
                return
            if isinstance(item, c_ast.NamedInitializer):
                self.b.problem(span, "designated initial values are not E-Code", hint="assign the element afterwards")
            elif not isinstance(item, c_ast.InitList):
                found.append((base + at, item))
                at += 1
            elif len(shape) == 1 or at % inner:
                self.b.problem(span, "braces deeper than the array", expected="one list for each row, or none")
                return
            else:
                self._collect(item, shape[1:], base + at, found)
                at += inner

    def _state(
        self, name: str, kind: Type, shape: tuple[int, ...], items: list[tuple[int, Ast]] | None, span: Span
    ) -> int | None:
        values: list[Expr] = []
        for at, item in items or ():
            given = self.b.coerce(self.expr(item, kind), kind, self.span(item))
            value = fold(given)
            if value is None and not is_bad(given):
                hint = None if is_constant(given) else "start with a constant and assign when an event is here"
                self.b.problem(given.span, f"the initial value of {name!r}", expected=f"a constant that fits {kind}",
                               hint=hint)  # fmt: skip
            if value is None:
                self._forget(name, span)
                return None
            while len(values) < at:  # a row that was not given in full
                values.append(self.b.coerce(self.b.const(0, span), kind, span))
            values.append(value)
        return self.b.declare(name, kind, span, shape=shape, state=True, init=values)

    def _fill(
        self, slot: int, kind: Type, shape: tuple[int, ...], items: list[tuple[int, Ast]], span: Span
    ) -> list[Stmt]:
        """Assign the given elements and zero to all others, as C does."""
        stmts: list[Stmt] = []
        given = {at for at, _ in items}
        zeros = [] if kind in (TEXT, BYTES) or isinstance(kind, Enum) else [
            at for at in range(math.prod(shape)) if at not in given
        ]  # fmt: skip
        if len(zeros) > _UNROLLED:
            stmts += self._zero_loop(slot, shape, span)
            zeros = []
            items = [(at, item) for at, item in items if not (isinstance(item, c_ast.Constant) and item.value == "0")]
        for at in zeros:
            stmts += self.b.assign_elem(slot, self._indices(at, shape, span), self.b.const(0, span), span)
        for at, item in items:
            value = self.expr(item, kind)
            stmts += self.b.assign_elem(slot, self._indices(at, shape, value.span), value, value.span)
        return stmts

    def _indices(self, at: int, shape: tuple[int, ...], span: Span) -> list[Expr]:
        parts: list[int] = []
        for size in reversed(shape):
            at, part = divmod(at, size)
            parts.insert(0, part)
        return [self.b.const(part, span) for part in parts]

    def _zero_loop(self, slot: int, shape: tuple[int, ...], span: Span) -> list[Stmt]:
        counters = [self.hide(I64, span) for _ in shape]
        body = self.b.assign_elem(slot, [self.b.var(c, span) for c in counters], self.b.const(0, span), span)
        for counter, size in zip(reversed(counters), reversed(shape), strict=True):
            test = self.b.compare("lt", self.b.var(counter, span), self.b.const(size, span), span)
            more = self.b.binary("add", self.b.var(counter, span), self.b.const(1, span), span)
            loop = self.b.loop(test, body, self.b.assign(counter, more, span), span)
            body = [*self.b.assign(counter, self.b.const(0, span), span), *loop]
        return body

    def hide(self, type: Type, span: Span) -> int:
        """A variable that the author does not see."""
        while self.b.find(name := f"__{self._hidden}") is not None:
            self._hidden += 1
        self._hidden += 1
        slot = self.b.declare(name, type, span)
        assert slot is not None
        return slot


def _is_const(node: Ast) -> bool:
    """Whether the variable itself is const: `const int x`, `char *const s`, but not `const char *s`."""
    here = node.type
    while isinstance(here, c_ast.ArrayDecl):
        here = here.type
    return "const" in ((here.quals if isinstance(here, c_ast.PtrDecl) else node.quals) or ())
