"""Kernels for batches, as LLVM assembly: bitmaps to bytes and back, the drive through blocks, gathering of texts."""

from __future__ import annotations

BLOCK = 1024  # rows of a batch that are worked on at a time

BATCH = r"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; n bits from bit `off` of src, one byte each; no src: all ones
define void @hw_expand(ptr noalias %dst, ptr noalias %src, i64 %off, i64 %n) {
entry:
  %none = icmp eq ptr %src, null
  br i1 %none, label %ones, label %start
ones:
  call void @llvm.memset.p0.i64(ptr %dst, i8 1, i64 %n, i1 false)
  ret void
start:
  %sh = and i64 %off, 7
  %by0 = lshr i64 %off, 3
  %back = sub i64 64, %sh
  %backm = and i64 %back, 63
  %aligned = icmp eq i64 %sh, 0
  br label %head
head:
  %i = phi i64 [0, %start], [%i64, %join]
  %i64 = add i64 %i, 64
  %full = icmp ule i64 %i64, %n
  br i1 %full, label %word, label %tail
word:
  %by1 = lshr i64 %i, 3
  %by = add i64 %by0, %by1
  %a = getelementptr i8, ptr %src, i64 %by
  %w0 = load i64, ptr %a, align 1
  br i1 %aligned, label %join, label %shift
shift:
  %a8 = getelementptr i8, ptr %a, i64 8
  %nb = load i8, ptr %a8, align 1
  %nw = zext i8 %nb to i64
  %hi = shl i64 %nw, %backm
  %lo = lshr i64 %w0, %sh
  %w1 = or i64 %hi, %lo
  br label %join
join:
  %w = phi i64 [%w0, %word], [%w1, %shift]
  %bits = bitcast i64 %w to <64 x i1>
  %bytes = zext <64 x i1> %bits to <64 x i8>
  %d = getelementptr i8, ptr %dst, i64 %i
  store <64 x i8> %bytes, ptr %d, align 1
  br label %head ; PLAIN
tail:
  %t = phi i64 [%i, %head], [%t1, %one]
  %more = icmp ult i64 %t, %n
  br i1 %more, label %one, label %end
one:
  %bit = add i64 %off, %t
  %tb = lshr i64 %bit, 3
  %ts = and i64 %bit, 7
  %ta = getelementptr i8, ptr %src, i64 %tb
  %tv = load i8, ptr %ta, align 1
  %ts8 = trunc i64 %ts to i8
  %tw = lshr i8 %tv, %ts8
  %tx = and i8 %tw, 1
  %td = getelementptr i8, ptr %dst, i64 %t
  store i8 %tx, ptr %td, align 1
  %t1 = add i64 %t, 1
  br label %tail ; PLAIN
end:
  ret void
}

; rows lo to hi (lo a multiple of 64) in blocks: expand bitmaps, run the rows, pack what came out, count.
; valid may be null where no row can be undecided. counts: rejected, passed, undecided, then one for each kind of fault
define i64 @hw_drive(ptr %fn, ptr %cols, i64 %lo, i64 %hi, ptr %env, ptr %expand, i64 %nexpand, ptr %scratch,
                     ptr noalias %passed, ptr noalias %valid, ptr noalias %counts, i64 %faulting) {
entry:
  %status = alloca [BLOCK x i8], align 64
  %faults = alloca [BLOCK x i8], align 64
  %nowhere = alloca i64
  %keep = icmp ne ptr %valid, null
  br label %head
head:
  %row = phi i64 [%lo, %entry], [%row1, %advance]
  %more = icmp ult i64 %row, %hi
  br i1 %more, label %block, label %end
block:
  %left = sub i64 %hi, %row
  %short = icmp ult i64 %left, BLOCK
  %m = select i1 %short, i64 %left, i64 BLOCK
  br label %exhead
exhead:
  %e = phi i64 [0, %block], [%e1, %exbody]
  %emore = icmp ult i64 %e, %nexpand
  br i1 %emore, label %exbody, label %run
exbody:
  %ea = getelementptr [2 x i64], ptr %expand, i64 %e
  %src = load ptr, ptr %ea
  %oa = getelementptr i64, ptr %ea, i64 1
  %off0 = load i64, ptr %oa
  %off = add i64 %off0, %row
  %dst = getelementptr [BLOCK x i8], ptr %scratch, i64 %e
  call void @hw_expand(ptr %dst, ptr %src, i64 %off, i64 %m)
  %e1 = add i64 %e, 1
  br label %exhead
run:
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 BLOCK, i1 false)
  call void @llvm.memset.p0.i64(ptr %faults, i8 0, i64 BLOCK, i1 false)
  call void %fn(ptr %cols, i64 %row, i64 %m, ptr %env, ptr %scratch, ptr %status, ptr %faults)
  %groups0 = add i64 %m, 63
  %groups = lshr i64 %groups0, 6
  %word0 = lshr i64 %row, 6
  br label %phead
phead:
  %g = phi i64 [0, %run], [%g1, %pbody]
  %np = phi i64 [0, %run], [%np1, %pbody]
  %nu = phi i64 [0, %run], [%nu1, %pbody]
  %pmore = icmp ult i64 %g, %groups
  br i1 %pmore, label %pbody, label %tally
pbody:
  %sa = getelementptr <64 x i8>, ptr %status, i64 %g
  %s = load <64 x i8>, ptr %sa, align 64
  %isp = icmp eq <64 x i8> %s, splat (i8 1)
  %isv = icmp ne <64 x i8> %s, splat (i8 2)
  %pw = bitcast <64 x i1> %isp to i64
  %vw = bitcast <64 x i1> %isv to i64
  %wi = add i64 %word0, %g
  %pa = getelementptr i64, ptr %passed, i64 %wi
  %va0 = getelementptr i64, ptr %valid, i64 %wi
  %va = select i1 %keep, ptr %va0, ptr %nowhere
  store i64 %pw, ptr %pa, align 1
  store i64 %vw, ptr %va, align 1
  %cp = call i64 @llvm.ctpop.i64(i64 %pw)
  %inv = xor i64 %vw, -1
  %cu = call i64 @llvm.ctpop.i64(i64 %inv)
  %np1 = add i64 %np, %cp
  %nu1 = add i64 %nu, %cu
  %g1 = add i64 %g, 1
  br label %phead ; PLAIN
tally:
  %decided = sub i64 %m, %np
  %nr = sub i64 %decided, %nu
  call void @bump(ptr %counts, i64 0, i64 %nr)
  call void @bump(ptr %counts, i64 1, i64 %np)
  call void @bump(ptr %counts, i64 2, i64 %nu)
  %look = icmp ne i64 %faulting, 0
  br i1 %look, label %fhead, label %advance
fhead:
  %k = phi i64 [0, %tally], [%k1, %fdone]
  %bit = phi i8 [1, %tally], [%bit1, %fdone]
  %kmore = icmp ult i64 %k, 5
  br i1 %kmore, label %frow, label %advance
frow:
  %one = insertelement <64 x i8> poison, i8 %bit, i64 0
  %mask = shufflevector <64 x i8> %one, <64 x i8> poison, <64 x i32> zeroinitializer
  br label %fbody
fbody:
  %i = phi i64 [0, %frow], [%i1, %fbody]
  %sum = phi i64 [0, %frow], [%sum1, %fbody]
  %fa = getelementptr <64 x i8>, ptr %faults, i64 %i
  %f = load <64 x i8>, ptr %fa, align 64
  %fb = and <64 x i8> %f, %mask
  %fc = icmp ne <64 x i8> %fb, zeroinitializer
  %fw = bitcast <64 x i1> %fc to i64
  %fn1 = call i64 @llvm.ctpop.i64(i64 %fw)
  %sum1 = add i64 %sum, %fn1
  %i1 = add i64 %i, 1
  %imore = icmp ult i64 %i1, %groups
  br i1 %imore, label %fbody, label %fdone ; PLAIN
fdone:
  %slot = add i64 %k, 3
  call void @bump(ptr %counts, i64 %slot, i64 %sum1)
  %k1 = add i64 %k, 1
  %bit1 = shl i8 %bit, 1
  br label %fhead ; PLAIN
advance:
  %row1 = add i64 %row, %m
  br label %head
end:
  ret i64 0
}

define internal void @bump(ptr %counts, i64 %slot, i64 %by) alwaysinline {
  %a = getelementptr i64, ptr %counts, i64 %slot
  %c = load i64, ptr %a
  %d = add i64 %c, %by
  store i64 %d, ptr %a
  ret void
}

; texts as pointer, length, fold at every `stride` bytes: first their offsets, then their bytes.
; a length below 0 is no text; returns the total or -1 beyond 2^31 - 1
define i64 @hw_text_offsets(ptr %base, i64 %stride, i64 %n, ptr noalias %offs) {
entry:
  store i32 0, ptr %offs
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %body]
  %sum = phi i64 [0, %entry], [%sum1, %body]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %at = mul i64 %i, %stride
  %a = getelementptr i8, ptr %base, i64 %at
  %la = getelementptr i64, ptr %a, i64 1
  %len0 = load i64, ptr %la
  %neg = icmp slt i64 %len0, 0
  %len = select i1 %neg, i64 0, i64 %len0
  %sum1 = add i64 %sum, %len
  %t = trunc i64 %sum1 to i32
  %i1 = add i64 %i, 1
  %oa = getelementptr i32, ptr %offs, i64 %i1
  store i32 %t, ptr %oa
  br label %head ; PLAIN
end:
  %big = icmp ugt i64 %sum, 2147483647
  %r = select i1 %big, i64 -1, i64 %sum
  ret i64 %r
}

define void @hw_text_copy(ptr noalias %dst, ptr %src, i64 %n, i8 %f) {
entry:
  %plain = icmp eq i8 %f, 0
  br i1 %plain, label %fast, label %head
fast:
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %n, i1 false)
  ret void
head:
  %i = phi i64 [0, %entry], [%i1, %body]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %a = getelementptr i8, ptr %src, i64 %i
  %b = load i8, ptr %a
  %c = call i8 @fold(i8 %b, i8 %f)
  %d = getelementptr i8, ptr %dst, i64 %i
  store i8 %c, ptr %d
  %i1 = add i64 %i, 1
  br label %head ; PLAIN
end:
  ret void
}

define i64 @hw_text_gather(ptr %base, i64 %stride, i64 %n, ptr noalias %data) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %next]
  %sum = phi i64 [0, %entry], [%sum1, %next]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %at = mul i64 %i, %stride
  %a = getelementptr i8, ptr %base, i64 %at
  %p = load ptr, ptr %a
  %la = getelementptr i64, ptr %a, i64 1
  %len = load i64, ptr %la
  %fa = getelementptr i64, ptr %a, i64 2
  %f = load i8, ptr %fa
  %some = icmp sgt i64 %len, 0
  br i1 %some, label %copy, label %next
copy:
  %dst = getelementptr i8, ptr %data, i64 %sum
  call void @hw_text_copy(ptr %dst, ptr %p, i64 %len, i8 %f)
  br label %next
next:
  %add = phi i64 [0, %body], [%len, %copy]
  %sum1 = add i64 %sum, %add
  %i1 = add i64 %i, 1
  br label %head ; PLAIN
end:
  ret i64 %sum
}
""".replace("BLOCK", str(BLOCK))
