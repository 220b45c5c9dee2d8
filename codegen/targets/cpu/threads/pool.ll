; The thread pool's base in LLVM IR: scratch memory of each thread, a stack of segments. Where the
; newest is noted, and where the pool is, says ``process.ll`` or ``c_library/pool.ll``, which
; follows; after that comes ``futex.ll`` or ``serial.ll``.
target triple = "${triple}"

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @abort() noreturn
declare i64 @syscall(i64, ...)
declare i64 @llvm.umax.i64(i64, i64)

define internal void @scratch_free(ptr %segment) {
entry:
  br label %next
next:
  %at = phi ptr [ %segment, %entry ], [ %below, %drop ]
  %end = icmp eq ptr %at, null
  br i1 %end, label %done, label %drop
drop:
  %below_p = getelementptr i8, ptr %at, i64 ${segment.below}
  %below = load ptr, ptr %below_p
  call void @free(ptr %at)
  br label %next
done:
  ret void
}

define internal ptr @scratch_grow(ptr %below, i64 %bytes) {
entry:
  %slot = alloca ptr
  %first = icmp eq ptr %below, null
  br i1 %first, label %make, label %measure
measure:
  %size_p = getelementptr i8, ptr %below, i64 ${segment.size}
  %used_p = getelementptr i8, ptr %below, i64 ${segment.used}
  %start_p = getelementptr i8, ptr %below, i64 ${segment.start}
  %size = load i64, ptr %size_p
  %used = load i64, ptr %used_p
  %start = load i64, ptr %start_p
  %twice = shl i64 %size, 1
  %sum = add i64 %start, %used
  br label %make
make:
  %least = phi i64 [ 262144, %entry ], [ %twice, %measure ]
  %under = phi i64 [ 0, %entry ], [ %sum, %measure ]
  %room = call i64 @llvm.umax.i64(i64 %least, i64 %bytes)
  %total = add i64 %room, ${header}
  %status = call i32 @posix_memalign(ptr %slot, i64 64, i64 %total)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %good, label %bad
bad:
  call void @abort()
  unreachable
good:
  %segment = load ptr, ptr %slot
  %new_below = getelementptr i8, ptr %segment, i64 ${segment.below}
  store ptr %below, ptr %new_below
  %new_size = getelementptr i8, ptr %segment, i64 ${segment.size}
  %new_used = getelementptr i8, ptr %segment, i64 ${segment.used}
  %new_start = getelementptr i8, ptr %segment, i64 ${segment.start}
  store i64 %room, ptr %new_size
  store i64 0, ptr %new_used
  store i64 %under, ptr %new_start
  call void @scratch_set(ptr %segment)
  ret ptr %segment
}

define ptr @nw_scratch(i64 %bytes) {
entry:
  %padded = add i64 %bytes, 63
  %round = and i64 %padded, -64
  %top = call ptr @scratch_top()
  %none = icmp eq ptr %top, null
  br i1 %none, label %grow, label %look
look:
  %size_p = getelementptr i8, ptr %top, i64 ${segment.size}
  %used_p0 = getelementptr i8, ptr %top, i64 ${segment.used}
  %size = load i64, ptr %size_p
  %used0 = load i64, ptr %used_p0
  %free = sub i64 %size, %used0
  %fits = icmp uge i64 %free, %round
  br i1 %fits, label %take, label %grow
grow:
  %grown = call ptr @scratch_grow(ptr %top, i64 %round)
  br label %take
take:
  %segment = phi ptr [ %top, %look ], [ %grown, %grow ]
  %used_p = getelementptr i8, ptr %segment, i64 ${segment.used}
  %used = load i64, ptr %used_p
  %after = add i64 %used, %round
  store i64 %after, ptr %used_p
  %offset = add i64 %used, ${header}
  %memory = getelementptr i8, ptr %segment, i64 %offset
  ret ptr %memory
}

define i64 @nw_scratch_mark() {
entry:
  %top = call ptr @scratch_top()
  %none = icmp eq ptr %top, null
  br i1 %none, label %zero, label %some
zero:
  ret i64 0
some:
  %used_p = getelementptr i8, ptr %top, i64 ${segment.used}
  %start_p = getelementptr i8, ptr %top, i64 ${segment.start}
  %used = load i64, ptr %used_p
  %start = load i64, ptr %start_p
  %mark = add i64 %used, %start
  ret i64 %mark
}

; When all is given back the newest segment, the largest, is kept and the others are freed.
define void @nw_scratch_release(i64 %mark) {
entry:
  %top0 = call ptr @scratch_top()
  %none = icmp eq ptr %top0, null
  br i1 %none, label %done, label %some
some:
  %all = icmp eq i64 %mark, 0
  br i1 %all, label %empty, label %next
empty:
  %empty_below = getelementptr i8, ptr %top0, i64 ${segment.below}
  %rest = load ptr, ptr %empty_below
  call void @scratch_free(ptr %rest)
  store ptr null, ptr %empty_below
  %empty_used = getelementptr i8, ptr %top0, i64 ${segment.used}
  %empty_start = getelementptr i8, ptr %top0, i64 ${segment.start}
  store i64 0, ptr %empty_used
  store i64 0, ptr %empty_start
  ret void
next:
  %top = phi ptr [ %top0, %some ], [ %below, %drop ]
  %start_p = getelementptr i8, ptr %top, i64 ${segment.start}
  %start = load i64, ptr %start_p
  %under = icmp ult i64 %mark, %start
  br i1 %under, label %drop, label %cut
drop:
  %below_p = getelementptr i8, ptr %top, i64 ${segment.below}
  %below = load ptr, ptr %below_p
  call void @free(ptr %top)
  call void @scratch_set(ptr %below)
  br label %next
cut:
  %used_p = getelementptr i8, ptr %top, i64 ${segment.used}
  %used = sub i64 %mark, %start
  store i64 %used, ptr %used_p
  br label %done
done:
  ret void
}

define internal void @serial(ptr %body, ptr %context, i64 %begin, i64 %end) {
  %mark = call i64 @nw_scratch_mark()
  call void %body(ptr %context, i64 %begin, i64 %end)
  call void @nw_scratch_release(i64 %mark)
  ret void
}
