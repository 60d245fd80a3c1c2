"""Statements of a Python function: blocks, assignments, loops, and how it ends."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from headwater.ir.build import Builder
from headwater.ir.nodes import Break, Const, Continue, Expr, Load, Missing, Param, Reduce, Span, Stmt
from headwater.ir.notes import is_bad
from headwater.lang.pyconst import NotConstant, constant
from headwater.lang.pyexpr import UNSUPPORTED, Expressions, Names, element_type, has_variable_index, is_none
from headwater.lang.pyloops import escapes, fixed_length, stores
from headwater.lang.pysource import Source
from headwater.lang.source import refusal
from headwater.types.model import BOOL, BYTES, F64, I64, SCALARS, TEXT, TIMESTAMP, Array, List, Record

MAX_BLOCKS = 50  # how deep statements may nest
_ANNOTATIONS = SCALARS | {"int": I64, "float": F64, "bool": BOOL, "str": TEXT, "bytes": BYTES, "datetime": TIMESTAMP}
_STATEMENTS: dict[type, tuple[str, str]] = {
    ast.FunctionDef: ("a function inside", "write its statements in place"),
    ast.AsyncFunctionDef: ("a function inside", "write its statements in place"),
    ast.ClassDef: ("a class", "use plain variables"),
    ast.Delete: ("del", "assign another value"),
    ast.AsyncFor: ("async for", "use for"),
    ast.With: ("with", "an interest has no resources"),
    ast.AsyncWith: ("async with", "an interest has no resources"),
    ast.Match: ("match", "use if and elif"),
    ast.Raise: ("raise", "return False rejects the event"),
    ast.Try: ("try", "what cannot be computed is missing; test it with `is None`"),
    ast.TryStar: ("try", "what cannot be computed is missing; test it with `is None`"),
    ast.Assert: ("assert", "use if not …: return False"),
    ast.Import: ("import", "the function library is always there"),
    ast.ImportFrom: ("import", "the function library is always there"),
    ast.Global: ("global", "use a parameter, or State for what lives on"),
    ast.Nonlocal: ("nonlocal", "use a parameter, or State for what lives on"),
}


class Statements(Expressions):
    """Walks statements; `body` is the whole function's."""

    def __init__(self, source: Source, builder: Builder, names: Names) -> None:
        super().__init__(source, builder, names)
        self.body: list[ast.stmt] = []
        self._depth = 0
        self._loops = 0
        self._hidden: set[int] = set()  # counters that no name reaches
        self._counters: dict[str, int] = {}  # loop variables that count themselves

    def definition(self, body: list[ast.stmt]) -> list[Stmt]:
        """All statements of the function."""
        self.body = body
        self.names.assigned = stores(body)
        return self._block(body, first=True)

    def returned(self, value: ast.expr) -> list[Stmt]:
        """A lambda's only expression."""
        return self._return(value, value)

    def _block(self, body: Sequence[ast.stmt], *, first: bool = False) -> list[Stmt]:
        self._depth += 1
        if self._depth > MAX_BLOCKS:
            raise refusal(self.source.text, self.source.span(body[0]), f"statements nest deeper than {MAX_BLOCKS}")
        done: list[Stmt] = []
        for at, stmt in enumerate(body):
            if first and at == 0 and isinstance(stmt, ast.Expr) and _is_text(stmt.value):
                continue  # the docstring
            done += self._statement(stmt)
        self._depth -= 1
        return done

    def _statement(self, node: ast.stmt) -> list[Stmt]:
        """The statements that one of Python becomes."""
        span = self.source.span(node)
        match node:
            case ast.Pass():
                return []
            case ast.Return(value=value):
                return self._return(value, node)
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self.expr(test)
                return self.b.if_(condition, self._block(body), self._block(orelse), span)
            case ast.While(test=test, body=body, orelse=orelse):
                self._no_else(orelse, "while")
                condition = self.expr(test)
                return self.b.loop(condition, self._loop_body(body), [], span)
            case ast.For():
                return self._for(node)
            case ast.Break() | ast.Continue():
                if not self._loops:
                    self.problem(node, "this is not inside a loop")
                return [Break(span) if isinstance(node, ast.Break) else Continue(span)]
            case ast.Assign(targets=[ast.Tuple() | ast.List() as target]):
                self.problem(target, "several targets at once", hint="assign one at a time")
                return []
            case ast.Assign(targets=[target], value=value):
                return self._assign(target, self._assigned(target, value), node)
            case ast.Assign():
                self.problem(node, "several targets at once", hint="assign one at a time")
                return []
            case ast.AnnAssign():
                return self._annotated(node)
            case ast.AugAssign(target=target, op=op, value=value):
                current = self._no_read(target) if self._is_out(target) else self.expr(target)
                return self._assign(target, self.operate(node, op, current, self.expr(value)), node)
            case ast.Expr(value=value):
                if type(value) in UNSUPPORTED:
                    self.expr(value)
                else:
                    self.problem(node, "this has no effect", hint="assign it, or return it")
                return []
        what, hint = _STATEMENTS.get(type(node), (type(node).__name__, None))
        self.problem(node, f"{what} is not possible here", hint=hint)
        return []

    def _no_else(self, orelse: list[ast.stmt], what: str) -> None:
        if orelse:
            self.problem(
                orelse[0], f"else after {what} is not possible here", hint="use a variable that says how it ended"
            )

    def _loop_body(self, body: list[ast.stmt]) -> list[Stmt]:
        self._loops += 1
        done = self._block(body)
        self._loops -= 1
        return done

    def _return(self, value: ast.expr | None, node: Any) -> list[Stmt]:
        """None rejects; the output type's constructor fills the output and passes."""
        span = self.source.span(node)
        if value is None or is_none(value):
            return self.b.return_nothing(span)
        if isinstance(value, ast.Call) and self._constructs(value, self.b.output):
            assert self.b.output is not None
            return self._construct(value, self.b.output, []) + self.b.return_(self.b.const(True, span), span)
        if isinstance(value, ast.IfExp) and any(self._is_verdict(part) for part in (value.body, value.orelse)):
            then, other = self._return(value.body, value.body), self._return(value.orelse, value.orelse)
            decided = self.b.if_(self.expr(value.test), then, other, span)
            return decided + self.b.return_(Missing(BOOL, span), span)
        result = self.expr(value)
        return self.b.return_(result, span)

    def _is_verdict(self, node: ast.expr) -> bool:
        if isinstance(node, ast.IfExp):
            return self._is_verdict(node.body) or self._is_verdict(node.orelse)
        return isinstance(node, ast.Call) and self._constructs(node, self.b.output)

    def _constructs(self, node: ast.Call, record: Record | None) -> bool:
        """Whether a call makes an event or nested record of this type, by the name it is called by."""
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
        if record is None or name is None:
            return False
        if name in (record.name, record.name.rsplit(".", 1)[-1]):
            return True
        found, value = self.source.resolve(name) if isinstance(node.func, ast.Name) else (False, None)
        binding = getattr(value, "__event_binding__", None) if found and isinstance(value, type) else None
        return binding is not None and binding().type == record

    def _construct(self, node: ast.Call, record: Record, steps: list[str | Expr]) -> list[Stmt]:
        done: list[Stmt] = []
        for arg in node.args:
            self.problem(arg, "fields are given by name here", hint=f"write {record.name}(x=…)")
        for keyword in node.keywords:
            if keyword.arg is None:
                self.problem(keyword, "fields are given by name here", hint="write them out")
                continue
            path = [*steps, keyword.arg]
            found = record.by_name.get(keyword.arg)
            if is_none(keyword.value) and found is not None and found.optional:
                continue
            inner, value = found.type if found is not None else None, keyword.value
            if isinstance(inner, Record) and isinstance(value, ast.Call) and self._constructs(value, inner):
                done += self._construct(value, inner, path)
            else:
                done += self.b.set_out(path, self.expr(keyword.value), self.source.span(keyword))
        return done

    # ── assignments ──

    def _assigned(self, target: ast.expr, value: ast.expr) -> Expr:
        if is_none(value):
            return self.problem(value, "None cannot be assigned", hint="a variable starts without a value")
        return self.expr(value)

    def _is_out(self, target: ast.expr) -> bool:
        while isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
        return isinstance(target, ast.Name) and target.id == self.names.out

    def _no_read(self, node: Any) -> Expr:
        return self.problem(node, "the output cannot be read", hint="compute in a variable, then set the output")

    def _assign(self, target: ast.expr, value: Expr, node: Any) -> list[Stmt]:
        """An assignment to a variable, an attribute of the state, an element or a field of the output."""
        span = self.source.span(node)
        match target:
            case ast.Name(id=name):
                return self._assign_local(target, name, value, node)
            case _ if self._is_out(target):
                return self.b.set_out(self._out_steps(target), value, span)
            case ast.Attribute(value=ast.Name(id=name)) if name in self.names.states:
                slot = self._state(target, name)
                return [] if slot is None else self._fit(slot, value, node)
            case ast.Subscript():
                place = self.element(target)
                if place is not None:
                    return self.b.assign_elem(*place, value, span)
        root: Any = target
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Starred):
            root = root.value
        what = (
            "the event cannot be changed"
            if getattr(root, "id", None) == self.names.event
            else "this cannot be assigned"
        )
        self.problem(target, what, expected="a variable, state.x or out.x")
        return []

    def _is_parameter(self, name: str) -> bool:
        return name in (self.names.event, self.names.out) or name in self.names.states or name in self.b.params

    def _assign_local(self, target: Any, name: str, value: Expr, node: Any) -> list[Stmt]:
        """An assignment to a variable. The first one gives it its type; a name for a part of the event is an alias, and
        no variable."""
        names = self.names
        if self._is_parameter(name):
            self.problem(target, f"{name!r} is a parameter of the function", hint="use a variable of another name")
            return []
        if name in names.locals:
            return self._fit(names.locals[name], value, node)
        if is_bad(value):
            names.aliases.setdefault(name, value)
            return []
        if isinstance(value, Load) and isinstance(value.stored, Array | List | Record):
            if names.assigned.get(name) == 1 and not has_variable_index(value):
                names.aliases[name] = value
            else:
                hint = "give each one a name of its own, assigned once"
                self.problem(node, f"{name!r} cannot hold a whole {value.stored}", hint=hint)
                names.aliases[name] = self._bad(node)
            return []
        names.aliases.pop(name, None)
        slot = self.b.declare(name, value.type, self.source.span(target))
        if slot is None:
            return []
        names.locals[name] = slot
        return self.b.assign(slot, value, self.source.span(node))

    def _fit(self, slot: int, value: Expr, node: Any) -> list[Stmt]:
        variable = self.b.variables[slot]
        if variable.type == I64 and not is_bad(value) and value.type == F64 and not variable.shape:
            hint = f"start it with a float, e.g. {variable.name} = 0.0, or use int(…)"
            self.problem(node, f"{variable.name!r} holds integers", expected="an integer", found="a float", hint=hint)
            return []
        return self.b.assign(slot, value, self.source.span(node))

    def _annotated(self, node: ast.AnnAssign) -> list[Stmt]:
        """`name: type = value`: the way to give a variable another type than its first value has."""
        name = node.annotation.id if isinstance(node.annotation, ast.Name) else getattr(node.annotation, "attr", "")
        type = _ANNOTATIONS.get(name)
        if not isinstance(node.target, ast.Name) or type is None:
            expected = "a variable of type int, float, bool, str, bytes or datetime"
            self.problem(node.annotation, "this annotation is not possible here", expected=expected)
            return []
        variable = node.target.id
        if variable in self.names.locals:
            self.problem(node.target, f"{variable!r} has a type already", hint="annotate its first assignment")
        elif (
            variable in (self.names.event, self.names.out) or variable in self.b.params or variable in self.names.states
        ):
            self.problem(node.target, f"{variable!r} is a parameter of the function", hint="use another name")
            return []
        else:
            slot = self.b.declare(variable, type, self.source.span(node.target))
            if slot is not None:
                self.names.locals[variable] = slot
        if node.value is None:
            return []
        return self._assign(node.target, self._assigned(node.target, node.value), node)

    def _out_steps(self, target: ast.expr) -> list[str | Expr]:
        steps: list[str | Expr] = []
        while not isinstance(target, ast.Name):
            if isinstance(target, ast.Attribute):
                steps.append(target.attr)
            elif isinstance(target, ast.Subscript):
                steps.append(self.index(target.slice))
            target = target.value  # type: ignore[attr-defined]
        return steps[::-1]

    # ── for ──

    def _for(self, node: ast.For) -> list[Stmt]:
        self._no_else(node.orelse, "for")
        if not isinstance(node.target, ast.Name):
            self.problem(node.target, "one variable at a time", hint="use for i in range(…)")
            return []
        if self._is_parameter(node.target.id):
            self.problem(node.target, f"{node.target.id!r} is a parameter of the function", hint="use another name")
            return []
        call = node.iter
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range":
            return self._for_range(node, node.target, call)
        return self._for_each(node, node.target)

    def _for_range(self, node: ast.For, target: ast.Name, call: ast.Call) -> list[Stmt]:
        """`for i in range(...)` as a counting loop, with a counter of its own where the body changes `i` or needs it
        afterwards."""
        span, place = self.source.span(node), self.source.span(call)
        step = self._step(call)
        limits = [self._limit(arg) for arg in call.args[:2]]
        if step is None or any(map(is_bad, limits)):
            self.names.aliases.setdefault(target.id, self._bad(target))
            self._loop_body(node.body)
            return []
        start, stop = limits if len(limits) == 2 else (self.b.const(0, place), limits[0])
        # Python's variable keeps its last value and may be changed inside; where neither shows, it counts by itself.
        own = not escapes(target.id, self.body)
        slot = self._own_counter(target) if own else None
        counter = slot if slot is not None else self._hidden_counter(target.id, span)
        done = self.b.assign(counter, start, place)
        if not _is_steady(stop):
            limit = self._hidden_counter(f"{target.id} stop", span)
            done += self.b.assign(limit, stop, place)
            stop = self.b.var(limit, place)
        at = self.b.var(counter, place)
        begin = [] if slot is not None else self._assign_local(target, target.id, at, target)
        test = self.b.compare("lt" if step > 0 else "gt", at, stop, place)
        body = begin + self._loop_body(node.body)
        moved = self.b.binary("add" if step > 0 else "sub", at, self.b.const(abs(step), place), place)
        return done + self.b.loop(test, body, self.b.assign(counter, moved, place), span)

    def _step(self, call: ast.Call) -> int | None:
        if call.keywords or not 1 <= len(call.args) <= 3:
            expected = "range(stop), range(start, stop) or range(start, stop, step)"
            self.problem(call, "arguments of range()", expected=expected)
            return None
        if len(call.args) < 3:
            return 1
        try:
            step = constant(call.args[2], self.source)
        except NotConstant:
            step = 0
        if not isinstance(step, int) or isinstance(step, bool) or step == 0 or abs(step) >= 1 << 63:
            self.problem(call.args[2], "the step of range()", expected="a constant integer that is not zero")
            return None
        return step

    def _limit(self, node: ast.expr) -> Expr:
        limit = self.expr(node)
        if is_bad(limit) or limit.type == I64:
            return limit
        return self.problem(node, "an argument of range()", expected="an integer (i64)", found=str(limit.type))

    def _hidden_counter(self, name: str, span: Span) -> int:
        slot = self.b.declare(f"{name}#{len(self._hidden)}", I64, span)
        assert slot is not None  # no name of Python has a # in it
        self._hidden.add(slot)
        return slot

    def _own_counter(self, target: ast.Name) -> int | None:
        if target.id not in self._counters:
            if target.id in self.names.locals:
                return None
            slot = self.b.declare(target.id, I64, self.source.span(target))
            if slot is None:
                return None
            self._counters[target.id] = self.names.locals[target.id] = slot
            self.names.aliases.pop(target.id, None)
        return self._counters[target.id]

    def _for_each(self, node: ast.For, target: ast.Name) -> list[Stmt]:
        """`for x in e.items` as a counting loop over places; `x` is a variable, or, of arrays and records, an alias of
        the element."""
        span, place = self.source.span(node), self.source.span(node.iter)
        whole = self._iterated(node)
        if not isinstance(whole, Load):
            self.names.aliases.setdefault(target.id, whole)
            self._loop_body(node.body)
            return []
        counter = self._hidden_counter(target.id, span)
        at = self.b.var(counter, place)
        count = fixed_length(whole, self.b.input, self._hidden)
        length = self.b.call("len", [whole], place) if count is None else self.b.const(count, place)
        element = self.b.index(whole, at, place)
        begin: list[Stmt] = []
        if isinstance(element_type(whole), Array | List | Record):
            if escapes(target.id, self.body):
                self.problem(target, f"{target.id!r} is used outside its loop", hint="use it inside the loop only")
            self.names.aliases[target.id] = element
        else:
            begin = self._assign_local(target, target.id, element, target)
        body = begin + self._loop_body(node.body)
        step = self.b.assign(counter, self.b.binary("add", at, self.b.const(1, place), place), place)
        start = self.b.assign(counter, self.b.const(0, place), place)
        return start + self.b.loop(self.b.compare("lt", at, length, place), body, step, span)

    def _iterated(self, node: ast.For) -> Expr:
        """The array that is looped over, or a bad node after noting a problem."""
        whole = self.expr(node.iter)
        if is_bad(whole):
            return whole
        if not isinstance(whole, Load) or not isinstance(whole.stored, Array | List):
            expected = "range(…) or an array of the event"
            return self.problem(node.iter, "this cannot be looped over", expected=expected, found=str(whole.type))
        names = {inner.id for inner in ast.walk(node.iter) if isinstance(inner, ast.Name)}
        if names & set(stores(node.body)):
            message = "the index of this array changes inside the loop"
            return self.problem(node.iter, message, hint="loop with range(…)")
        return whole


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_steady(limit: Expr) -> bool:
    """Whether a limit may be looked at again in every round: it is cheap and cannot change."""
    if isinstance(limit, Load | Reduce):
        plain = all(isinstance(step, str | Const) for step in limit.path.steps)
        return plain and (isinstance(limit, Load) or limit.op == "len")
    return isinstance(limit, Const | Param)
