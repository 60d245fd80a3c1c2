"""Kernels that append to a record under assembly (`codegen/assembly.py`), as LLVM assembly.

`out` is the output block: address of the buffer, its capacity. `cursor` is where the record ends so far. Nothing is
written beyond the capacity, but the cursor goes on, so that the caller learns how much room the record needs.
"""

from __future__ import annotations

OUTPUT = r"""
; a reference at an offset of the record
define internal void @refer(ptr %out, i64 %slot, i64 %offset, i64 %length) {
entry:
  %ca = getelementptr i64, ptr %out, i64 1
  %room = load i64, ptr %ca
  %end = add i64 %slot, 8
  %fits = icmp ule i64 %end, %room
  br i1 %fits, label %put, label %done
put:
  %base = load ptr, ptr %out
  %a = getelementptr i8, ptr %base, i64 %slot
  %o = trunc i64 %offset to i32
  %l = trunc i64 %length to i32
  store i32 %o, ptr %a, align 1
  %b = getelementptr i8, ptr %a, i64 4
  store i32 %l, ptr %b, align 1
  br label %done
done:
  ret void
}

; zeros up to a multiple of `align`; returns the new end
define i64 @hw_pad(ptr %out, ptr %cursor, i64 %align) {
entry:
  %start = load i64, ptr %cursor
  %less = sub i64 %align, 1
  %more = add i64 %start, %less
  %mask = sub i64 0, %align
  %end = and i64 %more, %mask
  store i64 %end, ptr %cursor
  %ca = getelementptr i64, ptr %out, i64 1
  %room = load i64, ptr %ca
  %fits = icmp ule i64 %end, %room
  br i1 %fits, label %put, label %done
put:
  %base = load ptr, ptr %out
  %a = getelementptr i8, ptr %base, i64 %start
  %gap = sub i64 %end, %start
  call void @llvm.memset.p0.i64(ptr %a, i8 0, i64 %gap, i1 false)
  br label %done
done:
  ret i64 %end
}

define void @hw_append_text(ptr %out, ptr %cursor, i64 %slot, ptr %src, i64 %n, i8 %f) {
entry:
  %some = icmp ne i64 %n, 0
  br i1 %some, label %text, label %none
none:
  call void @refer(ptr %out, i64 %slot, i64 0, i64 0)
  ret void
text:
  %start = load i64, ptr %cursor
  %end = add i64 %start, %n
  store i64 %end, ptr %cursor
  call void @refer(ptr %out, i64 %slot, i64 %start, i64 %n)
  %ca = getelementptr i64, ptr %out, i64 1
  %room = load i64, ptr %ca
  %fits = icmp ule i64 %end, %room
  br i1 %fits, label %put, label %done
put:
  %base = load ptr, ptr %out
  %a = getelementptr i8, ptr %base, i64 %start
  call void @hw_text_copy(ptr %a, ptr %src, i64 %n, i8 %f)
  br label %done
done:
  ret void
}

; the elements of a list as they are; returns where they begin
define i64 @hw_append_items(ptr %out, ptr %cursor, i64 %slot, ptr %src, i64 %count, i64 %size, i64 %align) {
entry:
  %some = icmp ne i64 %count, 0
  br i1 %some, label %items, label %none
none:
  call void @refer(ptr %out, i64 %slot, i64 0, i64 0)
  ret i64 0
items:
  %start = call i64 @hw_pad(ptr %out, ptr %cursor, i64 %align)
  %span = mul i64 %count, %size
  %end = add i64 %start, %span
  store i64 %end, ptr %cursor
  call void @refer(ptr %out, i64 %slot, i64 %start, i64 %count)
  %ca = getelementptr i64, ptr %out, i64 1
  %room = load i64, ptr %ca
  %fits = icmp ule i64 %end, %room
  br i1 %fits, label %put, label %done
put:
  %base = load ptr, ptr %out
  %a = getelementptr i8, ptr %base, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %src, i64 %span, i1 false)
  br label %done
done:
  ret i64 %start
}
"""
