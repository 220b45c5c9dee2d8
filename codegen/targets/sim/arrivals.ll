; Arrivals of blocks at counters in LLVM IR, and what the last block to arrive comes after.
;
; ``void nw_sim_arrive(ptr slots, i64 stride, i64 threads, i64 blocks)`` is done when all threads of
; a block are there; each has deposited where it wants the answer, and the counter's number. What a
; block did before the barrier before its arrival, and what the thread that arrives did at all,
; comes before what the last block does. A counter that is not back at zero when the launch ends is
; a fault.

@counters = internal global ptr null
@arrivals = internal global ptr null
@joined = internal global i32 0 ; the counter, from 1, at which the running block was the last one

define internal void @open_arrivals(ptr %launch) {
entry:
  %count = call i64 @field(ptr %launch, i64 ${launch.counters})
  %none = icmp eq i64 %count, 0
  br i1 %none, label %out, label %make
make:
  %bytes = shl i64 %count, 3
  %counters = call ptr @nw_scratch(i64 %bytes)
  call void @llvm.memset.p0.i64(ptr %counters, i8 0, i64 %bytes, i1 false)
  store ptr %counters, ptr @counters
  %x = call i64 @field(ptr %launch, i64 ${launch.grid.x})
  %y = call i64 @field(ptr %launch, i64 ${launch.grid.y})
  %z = call i64 @field(ptr %launch, i64 ${launch.grid.z})
  %xy = mul i64 %x, %y
  %blocks = mul i64 %xy, %z
  %size = mul i64 %blocks, ${sizeof.arrival}
  %arrivals = call ptr @nw_scratch(i64 %size)
  call void @llvm.memset.p0.i64(ptr %arrivals, i8 0, i64 %size, i1 false)
  store ptr %arrivals, ptr @arrivals
  br label %out
out:
  ret void
}

define void @nw_sim_arrive(ptr %slots, i64 %stride, i64 %threads, i64 %blocks) {
entry:
  %number_p = getelementptr i8, ptr %slots, i64 8
  %number = load i64, ptr %number_p
  %counters = load ptr, ptr @counters
  %counter = getelementptr i64, ptr %counters, i64 %number
  %old = load i64, ptr %counter
  %new = add i64 %old, 1
  %last = icmp eq i64 %new, %blocks
  %kept = select i1 %last, i64 0, i64 %new
  store i64 %kept, ptr %counter
  %arrivals = load ptr, ptr @arrivals
  %block = load i64, ptr @block
  %own = getelementptr [${sizeof.arrival} x i8], ptr %arrivals, i64 %block
  %number32 = trunc i64 %number to i32
  %name = add i32 %number32, 1
  %since = load i32, ptr @block_since
  %when = load i32, ptr @time
  %name_p = getelementptr i8, ptr %own, i64 ${arrival.counter}
  %since_p = getelementptr i8, ptr %own, i64 ${arrival.since}
  %when_p = getelementptr i8, ptr %own, i64 ${arrival.when}
  store i32 %name, ptr %name_p
  store i32 %since, ptr %since_p
  store i32 %when, ptr %when_p
  %joined = select i1 %last, i32 %name, i32 0
  store i32 %joined, ptr @joined
  %answer = zext i1 %last to i32
  br label %next
next:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %skip = mul i64 %t, %stride
  %slot = getelementptr i8, ptr %slots, i64 %skip
  %to = load ptr, ptr %slot
  store i32 %answer, ptr %to
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %next, label %out
out:
  ret void
}

; Whether an access of another block's thread came before an arrival that the running block waited
; for.
define internal i1 @arrived_before(i64 %block, i64 %thread, i32 %when) {
entry:
  %joined = load i32, ptr @joined
  %none = icmp eq i32 %joined, 0
  br i1 %none, label %no, label %look
look:
  %arrivals = load ptr, ptr @arrivals
  %other = getelementptr [${sizeof.arrival} x i8], ptr %arrivals, i64 %block
  %name_p = getelementptr i8, ptr %other, i64 ${arrival.counter}
  %since_p = getelementptr i8, ptr %other, i64 ${arrival.since}
  %when_p = getelementptr i8, ptr %other, i64 ${arrival.when}
  %name = load i32, ptr %name_p
  %since = load i32, ptr %since_p
  %at = load i32, ptr %when_p
  %here = icmp eq i32 %name, %joined
  %before = icmp ult i32 %when, %since
  %first = icmp eq i64 %thread, 0
  %not_after = icmp ule i32 %when, %at
  %itself = and i1 %first, %not_after
  %either = or i1 %before, %itself
  %answer = and i1 %here, %either
  ret i1 %answer
no:
  ret i1 false
}

define internal void @close_arrivals(ptr %launch) {
entry:
  %count = call i64 @field(ptr %launch, i64 ${launch.counters})
  %counters = load ptr, ptr @counters
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  %failed = call i1 @nw_sim_failed()
  %fine = xor i1 %failed, true
  %go = and i1 %more, %fine
  br i1 %go, label %look, label %out
look:
  %counter = getelementptr i64, ptr %counters, i64 %i
  %left = load i64, ptr %counter
  %bad = icmp ne i64 %left, 0
  br i1 %bad, label %tell, label %next
tell:
  %launch_n = ptrtoint ptr %launch to i64
  store i64 ${kind.UNJOINED}, ptr getelementptr (i8, ptr @report, i64 ${report.kind})
  call void @set_field(ptr @report, i64 ${report.launch}, i64 %launch_n)
  call void @set_field(ptr @report, i64 ${report.element}, i64 %i)
  call void @set_field(ptr @report, i64 ${report.other}, i64 %left)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %test
out:
  ret void
}
