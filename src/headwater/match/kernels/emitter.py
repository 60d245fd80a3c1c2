"""A little more than `native.emit` has: what hand-written kernels need."""

from __future__ import annotations

from collections.abc import Callable

from headwater.native.emit import Fn


class K(Fn):
    """A kernel under construction. Pointers and words are names of values, as in `Fn`."""

    def word(self, base: str, at: int | str) -> str:
        return self.load("i64", self.at_index("i64", base, str(at)), 8)

    def pointer(self, base: str, at: int | str) -> str:
        return self.load("ptr", self.at_index("i64", base, str(at)), 8)

    def u32(self, base: str, at: str) -> str:
        return self.load("i32", self.at_index("i32", base, at), 4)

    def wide(self, value: str, type: str = "i32") -> str:
        return self.v(f"zext {type} {value} to i64")

    def add(self, a: str, b: int | str) -> str:
        return self.v(f"add i64 {a}, {b}")

    def test(self, op: str, a: str, b: int | str, type: str = "i64") -> str:
        return self.v(f"icmp {op} {type} {a}, {b}")

    def put(self, value: str, base: str, at: int | str) -> None:
        self.store("i64", value, self.at_index("i64", base, str(at)), 8)

    def bump(self, base: str, at: int | str, by: int | str = 1) -> None:
        where = self.at_index("i64", base, str(at))
        self.store("i64", self.add(self.load("i64", where, 8), by), where, 8)

    def variable(self, type: str, start: str) -> str:
        at = self.alloca(type)
        self.store(type, start, at, 8)
        return at

    def when(self, test: str, then: Callable[[], None], other: Callable[[], None] | None = None) -> None:
        self.branch(test, then, other)

    def span(self, lo: str, hi: str, body: Callable[[str], None]) -> None:
        """`body(i)` for i from lo below hi."""
        at = self.variable("i64", lo)
        head, inside, end = self.label("head"), self.label("body"), self.label("end")
        self.at(head)
        i = self.load("i64", at, 8)
        self.cbr(self.test("ult", i, hi), inside, end)
        self.at(inside)
        body(i)
        self.store("i64", self.add(i, 1), at, 8)
        self.br(head)
        self.at(end)

    def choose(self, value: str, cases: dict[int, Callable[[], None]], other: Callable[[], None]) -> None:
        labels = {number: self.label("case") for number in cases}
        default, end = self.label("other"), self.label("end")
        arms = " ".join(f"i64 {number}, label %{label}" for number, label in labels.items())
        self.do(f"switch i64 {value}, label %{default} [ {arms} ]")
        self.ended = True
        for number, make in cases.items():
            self.at(labels[number])
            make()
            self.br(end)
        self.at(default)
        other()
        self.br(end)
        self.at(end)
