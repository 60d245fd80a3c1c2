"""What the native codecs of all event types share, compiled once per process: times, and buffers that grow."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater.native import engine
from headwater.native.once import once
from headwater.native.python.interpreter import (
    FOLD,
    MAKE_DATETIME,
    SIGNATURES,
    STAMP,
    TYPE,
    ZONE,
    ZONED,
    addresses,
    reads_datetimes,
)
from headwater.types.layout import MAX_SIZE
from headwater.types.model import TIMESTAMP_MIN

DAY = 86_400_000_000  # microseconds
NO_TIME = -(1 << 63)

_ALWAYS = {
    "hw_grow": "ptr %s(ptr, ptr, i64, i64, i64)",
    "hw_room": "i64 %s(i64, i64)",
    "hw_set": "i64 %s(ptr, i64)",
}
_TIMES = {"hw_micros": "i64 %s(ptr)", "hw_datetime": "ptr %s(i64)"}  # where datetimes can be read
KERNELS = _ALWAYS | _TIMES

# How large a buffer becomes that must hold `end`, and the larger buffer with the first `used` bytes of the old one:
# null if there is none, or if no record may be so large.
_GROW = f"""
define i64 @hw_room(i64 %cap, i64 %end) {{
entry:
  %twice = mul i64 %cap, 2
  %more = icmp ugt i64 %end, %twice
  %wanted = select i1 %more, i64 %end, i64 %twice
  %over = icmp ugt i64 %wanted, {MAX_SIZE}
  %room = select i1 %over, i64 {MAX_SIZE}, i64 %wanted
  ret i64 %room
}}

define ptr @hw_grow(ptr %old, ptr %stack, i64 %used, i64 %cap, i64 %end) {{
entry:
  %over = icmp ugt i64 %end, {MAX_SIZE}
  br i1 %over, label %no, label %yes
no:
  ret ptr null
yes:
  %room = call i64 @hw_room(i64 %cap, i64 %end)
  %first = icmp eq ptr %old, %stack
  br i1 %first, label %new, label %again
new:
  %made = call ptr @PyMem_Malloc(i64 %room)
  %bad = icmp eq ptr %made, null
  br i1 %bad, label %no, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %made, ptr %old, i64 %used, i1 false)
  ret ptr %made
again:
  %larger = call ptr @PyMem_Realloc(ptr %old, i64 %room)
  ret ptr %larger
}}
"""

# How many of n bytes are not zero.
_SET = """
define i64 @hw_set(ptr %p, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %sum = phi i64 [ 0, %entry ], [ %more, %body ]
  %on = icmp ult i64 %i, %n
  br i1 %on, label %body, label %end
body:
  %at = getelementptr i8, ptr %p, i64 %i
  %byte = load i8, ptr %at
  %is = icmp ne i8 %byte, 0
  %one = zext i1 %is to i64
  %more = add i64 %sum, %one
  %next = add i64 %i, 1
  br label %head
end:
  ret i64 %sum
}
"""

# Microseconds since 1970 UTC of a value that is exactly a datetime, in UTC itself and without fold; else NO_TIME. Years
# begin in March here, so that the day that may be missing is the last.
_MICROS = f"""
define internal i64 @byte(ptr %p, i64 %k) alwaysinline {{
  %at = getelementptr i8, ptr %p, i64 %k
  %b = load i8, ptr %at
  %x = zext i8 %b to i64
  ret i64 %x
}}

define i64 @hw_micros(ptr %v) {{
entry:
  %ta = getelementptr i8, ptr %v, i64 {TYPE}
  %type = load ptr, ptr %ta
  %exact = icmp eq ptr %type, CLASS
  br i1 %exact, label %aware, label %no
no:
  ret i64 {NO_TIME}
aware:
  %zoned = call i64 @byte(ptr %v, i64 {ZONED})
  %has = icmp ne i64 %zoned, 0
  br i1 %has, label %zone, label %no
zone:
  %za = getelementptr i8, ptr %v, i64 {ZONE}
  %z = load ptr, ptr %za
  %utc = icmp eq ptr %z, ZONE
  %fold = call i64 @byte(ptr %v, i64 {FOLD})
  %first = icmp eq i64 %fold, 0
  %plain = and i1 %utc, %first
  br i1 %plain, label %yes, label %no
yes:
  %y1 = call i64 @byte(ptr %v, i64 {STAMP})
  %y0 = call i64 @byte(ptr %v, i64 {STAMP + 1})
  %m = call i64 @byte(ptr %v, i64 {STAMP + 2})
  %d = call i64 @byte(ptr %v, i64 {STAMP + 3})
  %hour = call i64 @byte(ptr %v, i64 {STAMP + 4})
  %minute = call i64 @byte(ptr %v, i64 {STAMP + 5})
  %second = call i64 @byte(ptr %v, i64 {STAMP + 6})
  %u2 = call i64 @byte(ptr %v, i64 {STAMP + 7})
  %u1 = call i64 @byte(ptr %v, i64 {STAMP + 8})
  %u0 = call i64 @byte(ptr %v, i64 {STAMP + 9})
  %y256 = shl i64 %y1, 8
  %y = or i64 %y256, %y0
  %early = icmp ult i64 %m, 3
  %e = zext i1 %early to i64
  %year = sub i64 %y, %e
  %shift = select i1 %early, i64 9, i64 -3
  %month = add i64 %m, %shift
  %m153 = mul i64 %month, 153
  %m155 = add i64 %m153, 2
  %before = udiv i64 %m155, 5
  %y365 = mul i64 %year, 365
  %leap4 = udiv i64 %year, 4
  %leap100 = udiv i64 %year, 100
  %leap400 = udiv i64 %year, 400
  %d1 = add i64 %y365, %leap4
  %d2 = sub i64 %d1, %leap100
  %d3 = add i64 %d2, %leap400
  %d4 = add i64 %d3, %before
  %d5 = add i64 %d4, %d
  %days = sub i64 %d5, 719469
  %h1 = mul i64 %days, 24
  %hours = add i64 %h1, %hour
  %n1 = mul i64 %hours, 60
  %minutes = add i64 %n1, %minute
  %s1 = mul i64 %minutes, 60
  %seconds = add i64 %s1, %second
  %us = mul i64 %seconds, 1000000
  %u65536 = shl i64 %u2, 16
  %u256 = shl i64 %u1, 8
  %uh = or i64 %u65536, %u256
  %u = or i64 %uh, %u0
  %micros = add i64 %us, %u
  ret i64 %micros
}}
"""

# The datetime of microseconds since 1970 UTC, which are those of the years 1 to 9999.
_DATETIME = f"""
declare ptr @{MAKE_DATETIME}(i32, i32, i32, i32, i32, i32, i32, ptr, ptr)

define ptr @hw_datetime(i64 %micros) {{
entry:
  %t = sub i64 %micros, {TIMESTAMP_MIN}
  %days = udiv i64 %t, {DAY}
  %rest = urem i64 %t, {DAY}
  %z = add i64 %days, 306
  %era = udiv i64 %z, 146097
  %doe = urem i64 %z, 146097
  %q1 = udiv i64 %doe, 1460
  %q2 = udiv i64 %doe, 36524
  %q3 = udiv i64 %doe, 146096
  %n1 = sub i64 %doe, %q1
  %n2 = add i64 %n1, %q2
  %n3 = sub i64 %n2, %q3
  %yoe = udiv i64 %n3, 365
  %y365 = mul i64 %yoe, 365
  %y4 = udiv i64 %yoe, 4
  %y100 = udiv i64 %yoe, 100
  %d1 = sub i64 %doe, %y365
  %d2 = sub i64 %d1, %y4
  %doy = add i64 %d2, %y100
  %m5 = mul i64 %doy, 5
  %m52 = add i64 %m5, 2
  %mp = udiv i64 %m52, 153
  %p153 = mul i64 %mp, 153
  %p155 = add i64 %p153, 2
  %before = udiv i64 %p155, 5
  %dd = sub i64 %doy, %before
  %day = add i64 %dd, 1
  %late = icmp ult i64 %mp, 10
  %shift = select i1 %late, i64 3, i64 -9
  %month = add i64 %mp, %shift
  %y400 = mul i64 %era, 400
  %y = add i64 %yoe, %y400
  %early = icmp ult i64 %month, 3
  %one = zext i1 %early to i64
  %year = add i64 %y, %one
  %seconds = udiv i64 %rest, 1000000
  %us = urem i64 %rest, 1000000
  %minutes = udiv i64 %seconds, 60
  %second = urem i64 %seconds, 60
  %hour = udiv i64 %minutes, 60
  %minute = urem i64 %minutes, 60
  %iy = trunc i64 %year to i32
  %im = trunc i64 %month to i32
  %id = trunc i64 %day to i32
  %ih = trunc i64 %hour to i32
  %in = trunc i64 %minute to i32
  %is = trunc i64 %second to i32
  %iu = trunc i64 %us to i32
  %made = call ptr @{MAKE_DATETIME}(i32 %iy, i32 %im, i32 %id, i32 %ih, i32 %in, i32 %is, i32 %iu, ptr ZONE, ptr CLASS)
  ret ptr %made
}}
"""


@once
def _kernels() -> engine.Code:
    """Stays for the life of the process, as the datetime class and UTC do."""
    imports = addresses()
    names = ("PyMem_Malloc", "PyMem_Realloc")
    source = "\n".join(f"declare {SIGNATURES[name] % ('@' + name)}" for name in names)
    source += "\ndeclare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n" + _GROW + _SET
    exports = tuple(_ALWAYS)
    if reads_datetimes():
        times = _MICROS + _DATETIME
        for word, thing in (("ZONE", UTC), ("CLASS", datetime)):
            times = times.replace(f" {word}", f" inttoptr (i64 {id(thing)} to ptr)")
        source, exports = source + times, tuple(KERNELS)
    return engine.compile(source, exports, imports)


@once
def imports() -> dict[str, int]:
    """What the native codec of an event type may call."""
    return addresses() | _kernels().addresses
