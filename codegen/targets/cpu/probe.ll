; The probe of a profile in LLVM IR: totals of each thunk, events on each thread.
target triple = "${triple}"

@nw_probe = global [${sizeof.probe} x i8] zeroinitializer, align 64
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()
declare void @nw_pool_parallel(ptr, ptr, i64)

define internal i64 @now() {
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 ${clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest_p = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest_p
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}

define internal ptr @total(i64 %thunk) {
  %totals = load ptr, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.totals})
  %offset = mul i64 %thunk, ${sizeof.total}
  %total = getelementptr i8, ptr %totals, i64 %offset
  ret ptr %total
}

; Events beyond the capacity are counted only.
define internal void @event(i64 %thunk, i64 %part, i64 %begin, i64 %end) {
entry:
  %number = atomicrmw add ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.count}), i64 1 monotonic
  %capacity = load i64, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.capacity})
  %room = icmp ult i64 %number, %capacity
  br i1 %room, label %write, label %done
write:
  %events = load ptr, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.events})
  %offset = mul i64 %number, ${sizeof.event}
  %event = getelementptr i8, ptr %events, i64 %offset
  %thunk_p = getelementptr i8, ptr %event, i64 ${event.thunk}
  %part_p = getelementptr i8, ptr %event, i64 ${event.part}
  %thread_p = getelementptr i8, ptr %event, i64 ${event.thread}
  %begin_p = getelementptr i8, ptr %event, i64 ${event.begin}
  %end_p = getelementptr i8, ptr %event, i64 ${event.end}
  %thread = call i64 @pthread_self()
  store i64 %thunk, ptr %thunk_p
  store i64 %part, ptr %part_p
  store i64 %thread, ptr %thread_p
  store i64 %begin, ptr %begin_p
  store i64 %end, ptr %end_p
  br label %done
done:
  ret void
}

define i64 @nw_probe_begin(i64 %thunk) {
  store i64 %thunk, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.current})
  %now = call i64 @now()
  ret i64 %now
}

define void @nw_probe_end(i64 %thunk, i64 %began) {
  %now = call i64 @now()
  %spent = sub i64 %now, %began
  %total = call ptr @total(i64 %thunk)
  %seconds_p = getelementptr i8, ptr %total, i64 ${total.seconds}
  %calls_p = getelementptr i8, ptr %total, i64 ${total.calls}
  %seconds = load i64, ptr %seconds_p
  %calls = load i64, ptr %calls_p
  %more = add i64 %seconds, %spent
  %next = add i64 %calls, 1
  store i64 %more, ptr %seconds_p
  store i64 %next, ptr %calls_p
  call void @event(i64 %thunk, i64 0, i64 %began, i64 %now)
  ret void
}

; A closure is the body, its context and the thunk.
define internal void @part(ptr %closure, i64 %first, i64 %last) {
  %context_p = getelementptr i8, ptr %closure, i64 8
  %thunk_p = getelementptr i8, ptr %closure, i64 16
  %body = load ptr, ptr %closure
  %context = load ptr, ptr %context_p
  %thunk = load i64, ptr %thunk_p
  %began = call i64 @now()
  call void %body(ptr %context, i64 %first, i64 %last)
  %now = call i64 @now()
  %spent = sub i64 %now, %began
  %total = call ptr @total(i64 %thunk)
  %busy_p = getelementptr i8, ptr %total, i64 ${total.busy}
  %parts_p = getelementptr i8, ptr %total, i64 ${total.parts}
  %busy = atomicrmw add ptr %busy_p, i64 %spent monotonic
  %parts = atomicrmw add ptr %parts_p, i64 1 monotonic
  call void @event(i64 %thunk, i64 1, i64 %began, i64 %now)
  ret void
}

define void @nw_parallel(ptr %body, ptr %context, i64 %count) {
entry:
  %inside = load i64, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.parallel})
  %nested = icmp ne i64 %inside, 0
  br i1 %nested, label %plain, label %timed
plain:
  call void @nw_pool_parallel(ptr %body, ptr %context, i64 %count)
  ret void
timed:
  %closure = alloca [3 x i64], align 8
  %context_p = getelementptr i8, ptr %closure, i64 8
  %thunk_p = getelementptr i8, ptr %closure, i64 16
  %thunk = load i64, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.current})
  store ptr %body, ptr %closure
  store ptr %context, ptr %context_p
  store i64 %thunk, ptr %thunk_p
  store i64 1, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.parallel})
  call void @nw_pool_parallel(ptr @part, ptr %closure, i64 %count)
  store i64 0, ptr getelementptr (i8, ptr @nw_probe, i64 ${probe.parallel})
  ret void
}

; The nanoseconds that so many thunks of no work take to be timed.
define i64 @nw_probe_cost(i64 %count) {
entry:
  %start = call i64 @now()
  br label %next
next:
  %done = phi i64 [ 0, %entry ], [ %after, %next ]
  %began = call i64 @nw_probe_begin(i64 0)
  call void @nw_probe_end(i64 0, i64 %began)
  %after = add i64 %done, 1
  %more = icmp ult i64 %after, %count
  br i1 %more, label %next, label %out
out:
  %end = call i64 @now()
  %spent = sub i64 %end, %start
  ret i64 %spent
}
