"""Kernels for text, search and the calendar, as LLVM assembly (`module.py` says how they are used).

Text comes as pointer, length and fold (0 as it is, 1 lower, 2 upper). Nothing here reads a byte outside what its
arguments describe.
"""

from __future__ import annotations

TEXT = r"""
declare i32 @memcmp(ptr, ptr, i64)
declare ptr @memmem(ptr, i64, ptr, i64)
declare i64 @llvm.ctpop.i64(i64)

define internal i8 @fold(i8 %b, i8 %f) alwaysinline {
  %u0 = sub i8 %b, 65
  %u = icmp ult i8 %u0, 26
  %l0 = sub i8 %b, 97
  %l = icmp ult i8 %l0, 26
  %f1 = icmp eq i8 %f, 1
  %f2 = icmp eq i8 %f, 2
  %a = and i1 %f1, %u
  %c = and i1 %f2, %l
  %d = or i1 %a, %c
  %x = select i1 %d, i8 32, i8 0
  %r = xor i8 %b, %x
  ret i8 %r
}

define internal i32 @compare(ptr %p, i8 %f, ptr %q, i8 %g, i64 %n) {
entry:
  %both = or i8 %f, %g
  %plain = icmp eq i8 %both, 0
  br i1 %plain, label %fast, label %head
fast:
  %r = call i32 @memcmp(ptr %p, ptr %q, i64 %n)
  ret i32 %r
head:
  %i = phi i64 [0, %entry], [%i1, %next]
  %end = icmp uge i64 %i, %n
  br i1 %end, label %same, label %body
same:
  ret i32 0
body:
  %pi = getelementptr i8, ptr %p, i64 %i
  %qi = getelementptr i8, ptr %q, i64 %i
  %a0 = load i8, ptr %pi
  %b0 = load i8, ptr %qi
  %a = call i8 @fold(i8 %a0, i8 %f)
  %b = call i8 @fold(i8 %b0, i8 %g)
  %eq = icmp eq i8 %a, %b
  br i1 %eq, label %next, label %differ
next:
  %i1 = add i64 %i, 1
  br label %head ; PLAIN
differ:
  %lt = icmp ult i8 %a, %b
  %s = select i1 %lt, i32 -1, i32 1
  ret i32 %s
}

define i1 @hw_eq(ptr %p, i64 %n, i8 %f, ptr %q, i64 %m, i8 %g) {
entry:
  %same = icmp eq i64 %n, %m
  br i1 %same, label %look, label %no
look:
  %c = call i32 @compare(ptr %p, i8 %f, ptr %q, i8 %g, i64 %n)
  %z = icmp eq i32 %c, 0
  ret i1 %z
no:
  ret i1 false
}

define i32 @hw_cmp(ptr %p, i64 %n, i8 %f, ptr %q, i64 %m, i8 %g) {
  %short = icmp ult i64 %n, %m
  %k = select i1 %short, i64 %n, i64 %m
  %c = call i32 @compare(ptr %p, i8 %f, ptr %q, i8 %g, i64 %k)
  %z = icmp eq i32 %c, 0
  %longer = icmp ugt i64 %n, %m
  %l = zext i1 %longer to i32
  %d = select i1 %short, i32 -1, i32 %l
  %r = select i1 %z, i32 %d, i32 %c
  ret i32 %r
}

define i1 @hw_starts(ptr %p, i64 %n, i8 %f, ptr %q, i64 %m, i8 %g) {
entry:
  %fits = icmp uge i64 %n, %m
  br i1 %fits, label %look, label %no
look:
  %c = call i32 @compare(ptr %p, i8 %f, ptr %q, i8 %g, i64 %m)
  %z = icmp eq i32 %c, 0
  ret i1 %z
no:
  ret i1 false
}

define i1 @hw_ends(ptr %p, i64 %n, i8 %f, ptr %q, i64 %m, i8 %g) {
entry:
  %fits = icmp uge i64 %n, %m
  br i1 %fits, label %look, label %no
look:
  %skip = sub i64 %n, %m
  %s = getelementptr i8, ptr %p, i64 %skip
  %c = call i32 @compare(ptr %s, i8 %f, ptr %q, i8 %g, i64 %m)
  %z = icmp eq i32 %c, 0
  ret i1 %z
no:
  ret i1 false
}

define i1 @hw_contains(ptr %p, i64 %n, i8 %f, ptr %q, i64 %m, i8 %g) {
entry:
  %fits = icmp uge i64 %n, %m
  br i1 %fits, label %look, label %no
look:
  %both = or i8 %f, %g
  %plain = icmp eq i8 %both, 0
  br i1 %plain, label %fast, label %slow
fast:
  %none = icmp eq i64 %m, 0
  br i1 %none, label %yes, label %search
search:
  %found = call ptr @memmem(ptr %p, i64 %n, ptr %q, i64 %m)
  %r = icmp ne ptr %found, null
  ret i1 %r
slow:
  %last = sub i64 %n, %m
  br label %head
head:
  %i = phi i64 [0, %slow], [%i1, %next]
  %over = icmp ugt i64 %i, %last
  br i1 %over, label %no, label %body
body:
  %s = getelementptr i8, ptr %p, i64 %i
  %c = call i32 @compare(ptr %s, i8 %f, ptr %q, i8 %g, i64 %m)
  %z = icmp eq i32 %c, 0
  br i1 %z, label %yes, label %next
next:
  %i1 = add i64 %i, 1
  br label %head ; PLAIN
yes:
  ret i1 true
no:
  ret i1 false
}

define i64 @hw_chars(ptr %p, i64 %n) {
entry:
  br label %wide
wide:
  %w = phi i64 [0, %entry], [%w1, %words]
  %wsum = phi i64 [0, %entry], [%wsum1, %words]
  %w1 = add i64 %w, 64
  %full = icmp ule i64 %w1, %n
  br i1 %full, label %words, label %head
words:
  %wa = getelementptr i8, ptr %p, i64 %w
  %wv = load <64 x i8>, ptr %wa, align 1
  %ws = icmp sgt <64 x i8> %wv, splat (i8 -65)
  %wb = bitcast <64 x i1> %ws to i64
  %wc = call i64 @llvm.ctpop.i64(i64 %wb)
  %wsum1 = add i64 %wsum, %wc
  br label %wide ; PLAIN
head:
  %i = phi i64 [%w, %wide], [%i1, %body]
  %sum = phi i64 [%wsum, %wide], [%sum1, %body]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %a = getelementptr i8, ptr %p, i64 %i
  %b = load i8, ptr %a
  %start = icmp sgt i8 %b, -65
  %one = zext i1 %start to i64
  %sum1 = add i64 %sum, %one
  %i1 = add i64 %i, 1
  br label %head ; PLAIN
end:
  ret i64 %sum
}

; one code point further on, at most to the end
define internal i64 @advance(ptr %p, i64 %n, i64 %i) {
entry:
  %first = add i64 %i, 1
  br label %head
head:
  %k = phi i64 [%first, %entry], [%k1, %body]
  %more = icmp ult i64 %k, %n
  br i1 %more, label %look, label %end
look:
  %a = getelementptr i8, ptr %p, i64 %k
  %b = load i8, ptr %a
  %inside = icmp sle i8 %b, -65
  br i1 %inside, label %body, label %end
body:
  %k1 = add i64 %k, 1
  br label %head ; PLAIN
end:
  ret i64 %k
}

; whether bytes are UTF-8: continuations where they belong, the shortest form, no surrogates, nothing above 10FFFF
define i1 @hw_utf8(ptr %p, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i8, %ascii], [%i1, %single], [%e, %long]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %look, label %yes
look:
  %a = getelementptr i8, ptr %p, i64 %i
  %left = sub i64 %n, %i
  %eight = icmp uge i64 %left, 8
  br i1 %eight, label %word, label %byte
word:
  %w = load i64, ptr %a, align 1
  %high = and i64 %w, -9187201950435737472
  %plain = icmp eq i64 %high, 0
  br i1 %plain, label %ascii, label %byte
ascii:
  %i8 = add i64 %i, 8
  br label %head ; PLAIN
byte:
  %b0 = load i8, ptr %a
  %b = zext i8 %b0 to i64
  %i1 = add i64 %i, 1
  %one = icmp ult i64 %b, 128
  br i1 %one, label %single, label %multi
single:
  br label %head ; PLAIN
multi:
  %t3 = icmp uge i64 %b, 224
  %t4 = icmp uge i64 %b, 240
  %c3 = select i1 %t3, i64 3, i64 2
  %count = select i1 %t4, i64 4, i64 %c3
  %low = icmp ult i64 %b, 194
  %beyond = icmp ugt i64 %b, 244
  %short = icmp ult i64 %left, %count
  %no1 = or i1 %low, %beyond
  %no2 = or i1 %no1, %short
  br i1 %no2, label %no, label %second
second:
  %a1 = getelementptr i8, ptr %a, i64 1
  %s0 = load i8, ptr %a1
  %s = zext i8 %s0 to i64
  %is.e0 = icmp eq i64 %b, 224
  %is.ed = icmp eq i64 %b, 237
  %is.f0 = icmp eq i64 %b, 240
  %is.f4 = icmp eq i64 %b, 244
  %lo1 = select i1 %is.e0, i64 160, i64 128
  %lo = select i1 %is.f0, i64 144, i64 %lo1
  %hi1 = select i1 %is.ed, i64 159, i64 191
  %hi = select i1 %is.f4, i64 143, i64 %hi1
  %under = icmp ult i64 %s, %lo
  %over = icmp ugt i64 %s, %hi
  %out = or i1 %under, %over
  br i1 %out, label %no, label %rest
rest:
  %k = phi i64 [2, %second], [%k1, %tail]
  %done = icmp uge i64 %k, %count
  br i1 %done, label %long, label %tail
tail:
  %ak = getelementptr i8, ptr %a, i64 %k
  %bk = load i8, ptr %ak
  %k1 = add i64 %k, 1
  %goes = icmp sle i8 %bk, -65
  br i1 %goes, label %rest, label %no
long:
  %e = add i64 %i, %count
  br label %head ; PLAIN
yes:
  ret i1 true
no:
  ret i1 false
}

; whether all bytes are zero
define i1 @hw_zero(ptr %p, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %body]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %yes
body:
  %a = getelementptr i8, ptr %p, i64 %i
  %b = load i8, ptr %a
  %i1 = add i64 %i, 1
  %zero = icmp eq i8 %b, 0
  br i1 %zero, label %head, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; tokens: 0-255 a byte, 256 one code point, 257 any run; goes back to the last run only
define i1 @hw_like(ptr %p, i64 %n, i8 %f, ptr %toks, i64 %m) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i2, %go]
  %j = phi i64 [0, %entry], [%j2, %go]
  %si = phi i64 [0, %entry], [%si2, %go]
  %sj = phi i64 [-1, %entry], [%sj2, %go]
  %tend = icmp uge i64 %j, %m
  br i1 %tend, label %atend, label %token
atend:
  %done = icmp uge i64 %i, %n
  br i1 %done, label %yes, label %back
token:
  %ta = getelementptr i16, ptr %toks, i64 %j
  %t = load i16, ptr %ta
  %j1 = add i64 %j, 1
  %run = icmp eq i16 %t, 257
  br i1 %run, label %star, label %single
star:
  br label %go
single:
  %more = icmp ult i64 %i, %n
  br i1 %more, label %try, label %back
try:
  %any = icmp eq i16 %t, 256
  br i1 %any, label %skip, label %byte
skip:
  %i3 = call i64 @advance(ptr %p, i64 %n, i64 %i)
  br label %go
byte:
  %pa = getelementptr i8, ptr %p, i64 %i
  %b0 = load i8, ptr %pa
  %b1 = call i8 @fold(i8 %b0, i8 %f)
  %b = zext i8 %b1 to i16
  %eq = icmp eq i16 %b, %t
  %i4 = add i64 %i, 1
  br i1 %eq, label %go, label %back
back:
  %can = icmp ne i64 %sj, -1
  %left = icmp ult i64 %si, %n
  %ok = and i1 %can, %left
  br i1 %ok, label %retry, label %no
retry:
  %i5 = call i64 @advance(ptr %p, i64 %n, i64 %si)
  br label %go
go:
  %i2 = phi i64 [%i, %star], [%i3, %skip], [%i4, %byte], [%i5, %retry]
  %j2 = phi i64 [%j1, %star], [%j1, %skip], [%j1, %byte], [%sj, %retry]
  %si2 = phi i64 [%i, %star], [%si, %skip], [%si, %byte], [%i5, %retry]
  %sj2 = phi i64 [%j1, %star], [%sj, %skip], [%sj, %byte], [%sj, %retry]
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}

; year << 16 | month << 8 | day, from days counted in 400-year eras from March
define i64 @hw_civil(i64 %t) {
  %q0 = sdiv i64 %t, 86400000000
  %r0 = srem i64 %t, 86400000000
  %neg = icmp slt i64 %r0, 0
  %less = sext i1 %neg to i64
  %q = add i64 %q0, %less
  %days = add i64 %q, 719468
  %era0 = sdiv i64 %days, 146097
  %rem0 = srem i64 %days, 146097
  %dneg = icmp slt i64 %rem0, 0
  %eless = sext i1 %dneg to i64
  %era = add i64 %era0, %eless
  %plus = select i1 %dneg, i64 146097, i64 0
  %day = add i64 %rem0, %plus
  %a = udiv i64 %day, 1460
  %b = udiv i64 %day, 36524
  %c = udiv i64 %day, 146096
  %y1 = sub i64 %day, %a
  %y2 = add i64 %y1, %b
  %y3 = sub i64 %y2, %c
  %year = udiv i64 %y3, 365
  %d1 = mul i64 %year, 365
  %d2 = udiv i64 %year, 4
  %d3 = udiv i64 %year, 100
  %d4 = add i64 %d1, %d2
  %d5 = sub i64 %d4, %d3
  %of = sub i64 %day, %d5
  %m1 = mul i64 %of, 5
  %m2 = add i64 %m1, 2
  %m = udiv i64 %m2, 153
  %e1 = mul i64 %m, 153
  %e2 = add i64 %e1, 2
  %e3 = udiv i64 %e2, 5
  %e4 = sub i64 %of, %e3
  %dom = add i64 %e4, 1
  %late = icmp uge i64 %m, 10
  %late64 = zext i1 %late to i64
  %up = add i64 %m, 3
  %down = sub i64 %m, 9
  %month = select i1 %late, i64 %down, i64 %up
  %era400 = mul i64 %era, 400
  %z = add i64 %year, %era400
  %zz = add i64 %z, %late64
  %s1 = shl i64 %zz, 16
  %s2 = shl i64 %month, 8
  %s3 = or i64 %s1, %s2
  %s4 = or i64 %s3, %dom
  ret i64 %s4
}
"""

_FIND = r"""
define i64 @hw_find_NAME(ptr %keys, i64 %n, TYPE %key) {
entry:
  br label %head
head:
  %lo = phi i64 [0, %entry], [%lo1, %step]
  %hi = phi i64 [%n, %entry], [%hi1, %step]
  %more = icmp ult i64 %lo, %hi
  br i1 %more, label %step, label %end
step:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %a = getelementptr TYPE, ptr %keys, i64 %mid
  %k = load TYPE, ptr %a
  %lt = LESS TYPE %k, %key
  %up = add i64 %mid, 1
  %lo1 = select i1 %lt, i64 %up, i64 %lo
  %hi1 = select i1 %lt, i64 %hi, i64 %mid
  br label %head ; PLAIN
end:
  %in = icmp ult i64 %lo, %n
  br i1 %in, label %check, label %no
check:
  %ea = getelementptr TYPE, ptr %keys, i64 %lo
  %e = load TYPE, ptr %ea
  %eq = EQUAL TYPE %e, %key
  %r = select i1 %eq, i64 %lo, i64 -1
  ret i64 %r
no:
  ret i64 -1
}
"""


def _find(name: str, type: str, less: str, equal: str) -> str:
    text = _FIND.replace("NAME", name).replace("TYPE", type)
    return text.replace("LESS", less).replace("EQUAL", equal)


SEARCH = (
    _find("i64", "i64", "icmp slt", "icmp eq")
    + _find("u64", "i64", "icmp ult", "icmp eq")
    + _find("f64", "double", "fcmp olt", "fcmp oeq")
    + r"""
; texts sorted by their bytes: n + 1 offsets into data
define i64 @hw_find_text(ptr %offs, ptr %data, i64 %n, ptr %p, i64 %len, i8 %f) {
entry:
  br label %head
head:
  %lo = phi i64 [0, %entry], [%lo1, %step]
  %hi = phi i64 [%n, %entry], [%hi1, %step]
  %more = icmp ult i64 %lo, %hi
  br i1 %more, label %look, label %no
look:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %a = getelementptr i64, ptr %offs, i64 %mid
  %b = getelementptr i64, ptr %a, i64 1
  %from = load i64, ptr %a
  %to = load i64, ptr %b
  %size = sub i64 %to, %from
  %q = getelementptr i8, ptr %data, i64 %from
  %c = call i32 @hw_cmp(ptr %q, i64 %size, i8 0, ptr %p, i64 %len, i8 %f)
  %eq = icmp eq i32 %c, 0
  br i1 %eq, label %yes, label %step
step:
  %lt = icmp slt i32 %c, 0
  %up = add i64 %mid, 1
  %lo1 = select i1 %lt, i64 %up, i64 %lo
  %hi1 = select i1 %lt, i64 %hi, i64 %mid
  br label %head ; PLAIN
yes:
  ret i64 %mid
no:
  ret i64 -1
}
"""
)
