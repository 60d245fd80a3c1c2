"""What conditions between elements read, as registers of a run, and conditions as tapes of operations.

A register is two words: a value, and 1 if there is one. Each node has a block of them: what is known after its event
was taken. Taking an event copies the block of the node before and applies the updates of the element; a condition is
asked of such a block before the event is taken for good.

A tape is a list of (operation, argument) that works on a stack of values, each with its presence. Numbers are words,
doubles by their bits, texts by a number that was given to each. What is meant is what `docs/semantics.md` says: checked
arithmetic, three-valued logic. `tapes.py` writes them.
"""

from __future__ import annotations

from headwater.native.subset import bits, f64, float_of, i64, i64s, kernel, mul_overflows
from headwater.patterns.engine.arrays import EngineArrays
from headwater.patterns.engine.layout import COLUMNS, REGISTERS

# An element in the program: its conditions, updates and variables; whether it has any of the first or last.
CONDITIONS, CONDITION_COUNT, UPDATES, UPDATE_COUNT, VARIABLES, VARIABLE_COUNT, ELEMENT = 0, 1, 2, 3, 4, 5, 6
# A condition: the elements that must have been taken, where its tape is and how long.
CONDITION_ELEMENTS, TAPE_AT, TAPE_LENGTH, CONDITION = 0, 1, 2, 3
# An update: what, to which register, from which column or register, and a further register.
UPDATE_KIND, UPDATE_TO, UPDATE_FROM, UPDATE_WITH, UPDATE = 0, 1, 2, 3, 4
# A variable: its register, the column, whether it is a double.
VARIABLE_REGISTER, VARIABLE_COLUMN, VARIABLE_FLOAT, VARIABLE = 0, 1, 2, 3

COPY, LATEST, FIRST_OF, COUNT, PRESENT, SUM, SUM_FLOAT = 0, 1, 2, 3, 4, 5, 6
MIN, MAX, MIN_FLOAT, MAX_FLOAT, TOTAL = 7, 8, 9, 10, 11

PUSH, READ, READ_COUNT, READ_SUM, READ_MEAN = 0, 1, 2, 3, 4
ADD, SUB, MUL, NEG = 10, 11, 12, 13
ADD_F, SUB_F, MUL_F, DIV_F, NEG_F, TO_FLOAT, IS_NAN = 20, 21, 22, 23, 24, 25, 26
EQ, NE, LT, LE, GT, GE = 30, 31, 32, 33, 34, 35
EQ_F, NE_F, LT_F, LE_F, GT_F, GE_F = 40, 41, 42, 43, 44, 45
AND, OR, NOT, MISSING, COALESCE = 50, 51, 52, 53, 54

MIN_INT = -(1 << 63)
STACK = 64  # values on a tape's stack
OVERFLOWED = 2  # in place of a presence: a sum that did not fit stays missing


@kernel
def update(it: EngineArrays, block: i64s, base: i64, at: i64, row: i64) -> i64:
    """One update of the block at `base`, by a row's values at `row`."""
    kind = it.program[at + UPDATE_KIND]
    to = base + it.program[at + UPDATE_TO]
    source = it.program[at + UPDATE_FROM]
    if kind == COPY:
        block[to] = block[base + source]
        block[to + 1] = block[base + source + 1]
    elif kind == LATEST:
        block[to] = it.values[row + source]
        block[to + 1] = it.values[row + source + 1]
    elif kind == FIRST_OF:
        if block[base + it.program[at + UPDATE_WITH]] == 0:
            block[to] = it.values[row + source]
            block[to + 1] = it.values[row + source + 1]
    elif kind == COUNT:
        block[to] += 1
    elif it.values[row + source + 1] == 1:
        x = it.values[row + source]
        before = block[to]
        if kind == PRESENT:
            block[to] = before + 1
        elif kind == SUM:
            if block[to + 1] != OVERFLOWED:
                total = before + x
                block[to] = total
                if (before ^ total) & (x ^ total) < 0:
                    block[to + 1] = OVERFLOWED
        elif kind == SUM_FLOAT:
            block[to] = bits(float_of(before) + float_of(x))
        elif kind == TOTAL:
            block[to] = bits(float_of(before) + float(x))
        elif block[to + 1] == 0:
            block[to] = x
            block[to + 1] = 1
        elif kind == MIN:
            if x < before:
                block[to] = x
        elif kind == MAX:
            if x > before:
                block[to] = x
        elif float_of(x) != float_of(x) or float_of(before) != float_of(before):
            block[to] = bits(float_of(x) + float_of(before))
        elif kind == MIN_FLOAT:
            if float_of(x) < float_of(before):
                block[to] = x
        elif float_of(x) > float_of(before):
            block[to] = x
    return 0


@kernel
def take_registers(it: EngineArrays, element: i64, prev: i64, new: i64, row: i64) -> i64:
    """The block of a new node."""
    size = it.control[REGISTERS]
    for k in range(size):
        it.regs[new * size + k] = it.regs[prev * size + k]
    at = it.program[element * ELEMENT + UPDATES]
    for _ in range(it.program[element * ELEMENT + UPDATE_COUNT]):
        update(it, it.regs, new * size, at, row * it.control[COLUMNS])
        at += UPDATE
    return 0


@kernel
def compared(kind: i64, x: i64, y: i64) -> i64:
    """1 if a comparison of integers holds; `kind` is the tape's word for it."""
    if kind == EQ:
        return 1 if x == y else 0
    if kind == NE:
        return 1 if x != y else 0
    if kind == LT:
        return 1 if x < y else 0
    if kind == LE:
        return 1 if x <= y else 0
    if kind == GT:
        return 1 if x > y else 0
    return 1 if x >= y else 0


@kernel
def compared_floats(kind: i64, x: f64, y: f64) -> i64:
    """1 if a comparison of floats holds; with NaN only `!=` does."""
    if kind == EQ_F:
        return 1 if x == y else 0
    if kind == NE_F:
        return 1 if x != y else 0
    if kind == LT_F:
        return 1 if x < y else 0
    if kind == LE_F:
        return 1 if x <= y else 0
    if kind == GT_F:
        return 1 if x > y else 0
    return 1 if x >= y else 0


@kernel
def judged(it: EngineArrays, tape: i64, length: i64, stack: i64) -> i64:
    """The result of a tape over the block at the beginning of `work`: 1 true, 0 false, -1 missing. `stack` is where the
    stack begins."""
    top = stack
    for k in range(length):
        kind = it.program[tape + 2 * k]
        arg = it.program[tape + 2 * k + 1]
        if kind <= READ_MEAN:
            if kind == PUSH:
                it.work[top] = arg
                it.work[top + 1] = 1
            elif kind == READ:
                it.work[top] = it.work[arg]
                it.work[top + 1] = it.work[arg + 1]
            elif kind == READ_COUNT:
                it.work[top] = it.work[arg]
                it.work[top + 1] = 1
            elif kind == READ_SUM:
                it.work[top] = it.work[arg]
                it.work[top + 1] = 0 if it.work[arg + 1] == OVERFLOWED else 1
            else:  # the total, then how many
                it.work[top + 1] = 1 if it.work[arg + 2] > 0 else 0
                if it.work[arg + 2] > 0:
                    it.work[top] = bits(float_of(it.work[arg]) / float(it.work[arg + 2]))
            top += 2
        elif kind == MISSING:
            it.work[top - 2] = 1 - it.work[top - 1]
            it.work[top - 1] = 1
        elif kind == NOT:
            it.work[top - 2] = 1 - it.work[top - 2]
        elif kind == NEG:
            if it.work[top - 2] == MIN_INT:
                it.work[top - 1] = 0
            it.work[top - 2] = -it.work[top - 2]
        elif kind == NEG_F:
            it.work[top - 2] = bits(-float_of(it.work[top - 2]))
        elif kind == TO_FLOAT:
            it.work[top - 2] = bits(float(it.work[top - 2]))
        elif kind == IS_NAN:
            it.work[top - 2] = 1 if float_of(it.work[top - 2]) != float_of(it.work[top - 2]) else 0
        else:
            top -= 2
            x = it.work[top - 2]
            y = it.work[top]
            a = it.work[top - 1]
            b = it.work[top + 1]
            if kind >= AND and kind <= OR:
                decided = 0 if kind == AND else 1
                if (a == 1 and x == decided) or (b == 1 and y == decided):
                    it.work[top - 2] = decided
                    it.work[top - 1] = 1
                else:
                    it.work[top - 2] = 1 - decided
                    it.work[top - 1] = a & b
            elif kind == COALESCE:
                if a == 0:
                    it.work[top - 2] = y
                    it.work[top - 1] = b
            else:
                it.work[top - 1] = a & b
                if a & b == 1:
                    if kind == ADD:
                        it.work[top - 2] = x + y
                        if (x ^ (x + y)) & (y ^ (x + y)) < 0:
                            it.work[top - 1] = 0
                    elif kind == SUB:
                        it.work[top - 2] = x - y
                        if (x ^ y) & (x ^ (x - y)) < 0:
                            it.work[top - 1] = 0
                    elif kind == MUL:
                        it.work[top - 2] = x * y
                        it.work[top - 1] = 1 - mul_overflows(x, y)
                    elif kind == ADD_F:
                        it.work[top - 2] = bits(float_of(x) + float_of(y))
                    elif kind == SUB_F:
                        it.work[top - 2] = bits(float_of(x) - float_of(y))
                    elif kind == MUL_F:
                        it.work[top - 2] = bits(float_of(x) * float_of(y))
                    elif kind == DIV_F:
                        if float_of(y) == 0.0:
                            it.work[top - 1] = 0
                        it.work[top - 2] = bits(float_of(x) / float_of(y))
                    elif kind <= GE:
                        it.work[top - 2] = compared(kind, x, y)
                    else:
                        it.work[top - 2] = compared_floats(kind, float_of(x), float_of(y))
    if it.work[stack + 1] == 0:
        return -1
    return it.work[stack]


@kernel
def fits(it: EngineArrays, element: i64, node: i64, have: i64, row: i64) -> i64:
    """Whether a row that fits an element by itself does so after what was taken, up to `node`."""
    head = element * ELEMENT
    size = it.control[REGISTERS]
    here = row * it.control[COLUMNS]
    at = it.program[head + VARIABLES]
    for _ in range(it.program[head + VARIABLE_COUNT]):
        register = node * size + it.program[at + VARIABLE_REGISTER]
        if it.regs[register + 1] == 1:
            x = it.regs[register]
            y = it.values[here + it.program[at + VARIABLE_COLUMN]]
            if it.program[at + VARIABLE_FLOAT] == 1:
                if float_of(x) != float_of(y):
                    return 0
            elif x != y:
                return 0
        at += VARIABLE
    count = it.program[head + CONDITION_COUNT]
    if count == 0:
        return 1
    for k in range(size):
        it.work[k] = it.regs[node * size + k]
    at = it.program[head + UPDATES]
    for _ in range(it.program[head + UPDATE_COUNT]):
        update(it, it.work, 0, at, here)
        at += UPDATE
    taken = have | (1 << element)
    at = it.program[head + CONDITIONS]
    for _ in range(count):
        tape = it.program[at + TAPE_AT]
        length = it.program[at + TAPE_LENGTH]
        if it.program[at + CONDITION_ELEMENTS] & ~taken == 0 and judged(it, tape, length, size) != 1:
            return 0
        at += CONDITION
    return 1
