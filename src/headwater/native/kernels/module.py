"""The kernels that every program shares, as one module of LLVM assembly, compiled once per process (`runtime.py`).

Here are those that Python calls: builtin functions of one record.
"""

from __future__ import annotations

from headwater.native.kernels.batch import BATCH
from headwater.native.kernels.output import OUTPUT
from headwater.native.kernels.table import TABLE
from headwater.native.kernels.text import SEARCH, TEXT

PYTHON = r"""
declare ptr @PyBytes_AsString(ptr)
declare i64 @PyBytes_Size(ptr)
declare ptr @PyBytes_FromObject(ptr)
declare void @PyErr_Clear()
declare ptr @PyLong_FromLong(i64)
declare ptr @PyBool_FromLong(i64)
declare void @Py_DecRef(ptr)

; self is a bytes object: function, env, counts. Returns the function's result, or -1 with a Python error set.
define internal i64 @evaluate(ptr %self, ptr %arg) alwaysinline {
entry:
  %ctl = call ptr @PyBytes_AsString(ptr %self)
  %p = call ptr @PyBytes_AsString(ptr %arg)
  %not = icmp eq ptr %p, null
  br i1 %not, label %convert, label %direct
direct:
  %n = call i64 @PyBytes_Size(ptr %arg)
  %r = call i64 @judge(ptr %ctl, ptr %p, i64 %n)
  ret i64 %r
convert:
  call void @PyErr_Clear()
  %made = call ptr @PyBytes_FromObject(ptr %arg)
  %bad = icmp eq ptr %made, null
  br i1 %bad, label %fail, label %indirect
fail:
  ret i64 -1
indirect:
  %p2 = call ptr @PyBytes_AsString(ptr %made)
  %n2 = call i64 @PyBytes_Size(ptr %made)
  %r2 = call i64 @judge(ptr %ctl, ptr %p2, i64 %n2)
  call void @Py_DecRef(ptr %made)
  ret i64 %r2
}

define internal i64 @judge(ptr %ctl, ptr %p, i64 %n) alwaysinline {
entry:
  %fn = load ptr, ptr %ctl
  %ea = getelementptr i64, ptr %ctl, i64 1
  %env = load ptr, ptr %ea
  %ca = getelementptr i64, ptr %ctl, i64 2
  %counts = load ptr, ptr %ca
  %r = call i32 %fn(ptr %p, i64 %n, ptr %env)
  %r64 = zext i32 %r to i64
  %status = and i64 %r64, 255
  call void @bump(ptr %counts, i64 %status, i64 1)
  %faulty = icmp ugt i64 %r64, 255
  br i1 %faulty, label %kinds, label %end
kinds:
  %k = phi i64 [0, %entry], [%k1, %kinds]
  %at = add i64 %k, 8
  %sh = lshr i64 %r64, %at
  %bit = and i64 %sh, 1
  %slot = add i64 %k, 3
  call void @bump(ptr %counts, i64 %slot, i64 %bit)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, 5
  br i1 %more, label %kinds, label %end ; PLAIN
end:
  ret i64 %r64
}

define ptr @hw_py_run(ptr %self, ptr %arg) {
entry:
  %r = call i64 @evaluate(ptr %self, ptr %arg)
  %bad = icmp slt i64 %r, 0
  br i1 %bad, label %fail, label %good
fail:
  ret ptr null
good:
  %o = call ptr @PyLong_FromLong(i64 %r)
  ret ptr %o
}

define ptr @hw_py_test(ptr %self, ptr %arg) {
entry:
  %r = call i64 @evaluate(ptr %self, ptr %arg)
  %bad = icmp slt i64 %r, 0
  br i1 %bad, label %fail, label %good
fail:
  ret ptr null
good:
  %status = and i64 %r, 255
  %yes = icmp eq i64 %status, 1
  %z = zext i1 %yes to i64
  %o = call ptr @PyBool_FromLong(i64 %z)
  ret ptr %o
}
"""


def kernels() -> str:
    """All kernels as one module."""
    return _plain_loops("\n".join((TEXT, SEARCH, BATCH, OUTPUT, PYTHON, TABLE)))


def _plain_loops(text: str) -> str:
    """Keep loops marked PLAIN as they are: unrolled or vectorised they cost time to compile and gain nothing."""
    lines: list[str] = []
    tail: list[str] = []
    for line in text.splitlines():
        if line.endswith("; PLAIN"):
            n = 100 + 3 * len(tail)
            line = line.removesuffix(" ; PLAIN") + f", !llvm.loop !{n}"
            tail.append(
                f"!{n} = distinct !{{!{n}, !{n + 1}, !{n + 2}}}\n"
                f'!{n + 1} = !{{!"llvm.loop.vectorize.enable", i1 false}}\n'
                f'!{n + 2} = !{{!"llvm.loop.unroll.disable"}}'
            )
        lines.append(line)
    return "\n".join([*lines, *tail])
