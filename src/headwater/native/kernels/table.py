"""The table-driven kernel, as LLVM assembly: a conjunction of comparisons, one row of twelve words each.

0 1   presence byte's offset and mask, 0 for none        6   what to accept: 1 less, 2 equal, 4 greater, 8 unordered
2 3   the same of an enclosing record                    7   0 signed, 1 unsigned, 2 float, 3 text, 4 prefix, 5 presence
4     how to load (see `LOADS`)                          8   constant's bits or address
5     offset of the slot                                 9   constant's length
"""

from __future__ import annotations

LOADS = {"i8": 0, "i16": 1, "i32": 2, "i64": 3, "u8": 4, "u16": 5, "u32": 6, "u64": 3, "f32": 7, "f64": 8}

TABLE = r"""
; env -> table: size of the fixed part, magic and version, fingerprint, number of rows, rows
define i32 @hw_table(ptr %rec, i64 %len, ptr %env) {
entry:
  %tab = load ptr, ptr %env
  %fixed = load i64, ptr %tab
  %short = icmp ult i64 %len, %fixed
  br i1 %short, label %malformed, label %header
header:
  %size32 = load i32, ptr %rec, align 1
  %size = zext i32 %size32 to i64
  %h1 = icmp eq i64 %size, %len
  %ma = getelementptr i8, ptr %rec, i64 4
  %magic32 = load i32, ptr %ma, align 1
  %magic = zext i32 %magic32 to i64
  %xma = getelementptr i64, ptr %tab, i64 1
  %xmagic = load i64, ptr %xma
  %h2 = icmp eq i64 %magic, %xmagic
  %fa = getelementptr i8, ptr %rec, i64 8
  %fp = load i64, ptr %fa, align 1
  %xfa = getelementptr i64, ptr %tab, i64 2
  %xfp = load i64, ptr %xfa
  %h3 = icmp eq i64 %fp, %xfp
  %h12 = and i1 %h1, %h2
  %h = and i1 %h12, %h3
  br i1 %h, label %start, label %malformed
malformed:
  ret i32 4098
start:
  %na = getelementptr i64, ptr %tab, i64 3
  %n = load i64, ptr %na
  %rows = getelementptr i64, ptr %tab, i64 4
  br label %head
head:
  %i = phi i64 [0, %start], [%i1, %next]
  %miss = phi i1 [false, %start], [%miss1, %next]
  %fault = phi i32 [0, %start], [%fault1, %next]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %row, label %end
row:
  %r = getelementptr [12 x i64], ptr %rows, i64 %i
  %p0o = load i64, ptr %r
  %m0a = getelementptr i64, ptr %r, i64 1
  %m0 = load i64, ptr %m0a
  %p1a = getelementptr i64, ptr %r, i64 2
  %p1o = load i64, ptr %p1a
  %m1a = getelementptr i64, ptr %r, i64 3
  %m1 = load i64, ptr %m1a
  %p0 = getelementptr i8, ptr %rec, i64 %p0o
  %b0 = load i8, ptr %p0, align 1
  %p1 = getelementptr i8, ptr %rec, i64 %p1o
  %b1 = load i8, ptr %p1, align 1
  %z0 = zext i8 %b0 to i64
  %z1 = zext i8 %b1 to i64
  %a0 = and i64 %z0, %m0
  %a1 = and i64 %z1, %m1
  %on0 = icmp eq i64 %a0, %m0
  %on1 = icmp eq i64 %a1, %m1
  %here = and i1 %on0, %on1
  %ca = getelementptr i64, ptr %r, i64 7
  %class = load i64, ptr %ca
  %aa = getelementptr i64, ptr %r, i64 6
  %accept = load i64, ptr %aa
  %sa = getelementptr i64, ptr %r, i64 5
  %so = load i64, ptr %sa
  %slot = getelementptr i8, ptr %rec, i64 %so
  %ka = getelementptr i64, ptr %r, i64 8
  %k = load i64, ptr %ka
  %presence = icmp eq i64 %class, 5
  br i1 %presence, label %nulls, label %there
nulls:
  %null = select i1 %here, i64 1, i64 2
  br label %judge
there:
  br i1 %here, label %kind, label %lacks
lacks:
  br label %next
kind:
  %texty = icmp uge i64 %class, 3
  br i1 %texty, label %text, label %number
text:
  %o32 = load i32, ptr %slot, align 1
  %la = getelementptr i8, ptr %slot, i64 4
  %l32 = load i32, ptr %la, align 1
  %o = zext i32 %o32 to i64
  %l = zext i32 %l32 to i64
  %te = add i64 %o, %l
  %low = icmp ult i64 %o, %fixed
  %high = icmp ugt i64 %te, %len
  %out = or i1 %low, %high
  %some = icmp ne i64 %l, 0
  %wild = and i1 %out, %some
  br i1 %wild, label %outside, label %inside
outside:
  br label %next
inside:
  %tp0 = getelementptr i8, ptr %rec, i64 %o
  %tp = select i1 %some, ptr %tp0, ptr %rec
  %kp = inttoptr i64 %k to ptr
  %kla = getelementptr i64, ptr %r, i64 9
  %kl = load i64, ptr %kla
  %prefix = icmp eq i64 %class, 4
  br i1 %prefix, label %starts, label %compares
starts:
  %st = call i1 @hw_starts(ptr %tp, i64 %l, i8 0, ptr %kp, i64 %kl, i8 0)
  %stf = select i1 %st, i64 2, i64 1
  br label %judge
compares:
  %cmp = call i32 @hw_cmp(ptr %tp, i64 %l, i8 0, ptr %kp, i64 %kl, i8 0)
  %cl = icmp slt i32 %cmp, 0
  %ce = icmp eq i32 %cmp, 0
  %cge = select i1 %ce, i64 2, i64 4
  %cf = select i1 %cl, i64 1, i64 %cge
  br label %judge
number:
  %lda = getelementptr i64, ptr %r, i64 4
  %ld = load i64, ptr %lda
  switch i64 %ld, label %k3 [ i64 0, label %k0
    i64 1, label %k1
    i64 2, label %k2
    i64 4, label %k4
    i64 5, label %k5
    i64 6, label %k6
    i64 7, label %k7 ]
k0:
  %v0 = load i8, ptr %slot, align 1
  %x0 = sext i8 %v0 to i64
  br label %order
k1:
  %v1 = load i16, ptr %slot, align 1
  %x1 = sext i16 %v1 to i64
  br label %order
k2:
  %v2 = load i32, ptr %slot, align 1
  %x2 = sext i32 %v2 to i64
  br label %order
k3:
  %x3 = load i64, ptr %slot, align 1
  br label %order
k4:
  %v4 = load i8, ptr %slot, align 1
  %x4 = zext i8 %v4 to i64
  br label %order
k5:
  %v5 = load i16, ptr %slot, align 1
  %x5 = zext i16 %v5 to i64
  br label %order
k6:
  %v6 = load i32, ptr %slot, align 1
  %x6 = zext i32 %v6 to i64
  br label %order
k7:
  %v7 = load float, ptr %slot, align 1
  %d7 = fpext float %v7 to double
  %x7 = bitcast double %d7 to i64
  br label %order
order:
  %x = phi i64 [%x0, %k0], [%x1, %k1], [%x2, %k2], [%x3, %k3], [%x4, %k4], [%x5, %k5], [%x6, %k6], [%x7, %k7]
  %eqi = icmp eq i64 %x, %k
  %slt = icmp slt i64 %x, %k
  %ult = icmp ult i64 %x, %k
  %xd = bitcast i64 %x to double
  %kd = bitcast i64 %k to double
  %eqf = fcmp oeq double %xd, %kd
  %ltf = fcmp olt double %xd, %kd
  %uno = fcmp uno double %xd, %kd
  %isf = icmp eq i64 %class, 2
  %isu = icmp eq i64 %class, 1
  %lti = select i1 %isu, i1 %ult, i1 %slt
  %lt = select i1 %isf, i1 %ltf, i1 %lti
  %eq = select i1 %isf, i1 %eqf, i1 %eqi
  %un = and i1 %isf, %uno
  %f1 = select i1 %eq, i64 2, i64 4
  %f2 = select i1 %lt, i64 1, i64 %f1
  %f3 = select i1 %un, i64 8, i64 %f2
  br label %judge
judge:
  %flag = phi i64 [%null, %nulls], [%stf, %starts], [%cf, %compares], [%f3, %order]
  %hit = and i64 %flag, %accept
  %yes = icmp ne i64 %hit, 0
  br i1 %yes, label %next, label %rejected
next:
  %miss1 = phi i1 [%miss, %judge], [true, %lacks], [true, %outside]
  %fault1 = phi i32 [%fault, %judge], [%fault, %lacks], [4096, %outside]
  %i1 = add i64 %i, 1
  br label %head
rejected:
  ret i32 %fault
end:
  %s = select i1 %miss, i32 2, i32 1
  %res = or i32 %s, %fault
  ret i32 %res
}
"""
