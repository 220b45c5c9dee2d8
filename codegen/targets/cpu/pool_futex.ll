; The thread pool's workers in LLVM IR, which sleep on a futex, and ``nw_parallel`` over them.

; The generation in the high half (the futex word); in the low half the chunks left: 16 bits for
; the end of those not yet claimed, 16 bits for their beginning (at most 16,384 chunks).
@ticket = internal global i64 0, align 64
@done = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@job = internal global [${sizeof.job} x i8] zeroinitializer, align 64
@busy = internal global i32 0, align 64
@owner = internal global i32 0
@started = internal global i32 0
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @getpid()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @nw_record()
declare void @nw_lend(ptr)
declare i1 @nw_poll()
${declare_pause}

; Has the call that the job is part of been interrupted?
define internal i1 @ended(ptr %record) {
entry:
  %none = icmp eq ptr %record, null
  br i1 %none, label %no, label %look
look:
  %stop_p = getelementptr i8, ptr %record, i64 ${record.stop}
  %stop = load atomic i32, ptr %stop_p monotonic, align 4
  %ended = icmp ne i32 %stop, 0
  ret i1 %ended
no:
  ret i1 false
}

define internal i1 @claim(i1 %front) {
entry:
  br label %try
try:
  %old = load atomic i64, ptr @ticket acquire, align 8
  %first = and i64 %old, 65535
  %shifted = lshr i64 %old, 16
  %stop = and i64 %shifted, 65535
  %any = icmp ult i64 %first, %stop
  br i1 %any, label %take, label %none
take:
  %last = sub i64 %stop, 1
  %index = select i1 %front, i64 %first, i64 %last
  %change = select i1 %front, i64 1, i64 -65536
  %new = add i64 %old, %change
  %pair = cmpxchg ptr @ticket, i64 %old, i64 %new acq_rel acquire
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %run, label %try
run:
  %body = load ptr, ptr getelementptr (i8, ptr @job, i64 ${job.body})
  %context = load ptr, ptr getelementptr (i8, ptr @job, i64 ${job.context})
  %count = load i64, ptr getelementptr (i8, ptr @job, i64 ${job.count})
  %chunks = load i64, ptr getelementptr (i8, ptr @job, i64 ${job.chunks})
  %after = add i64 %index, 1
  %scaled = mul i64 %index, %count
  %scaled_after = mul i64 %after, %count
  %begin = udiv i64 %scaled, %chunks
  %end = udiv i64 %scaled_after, %chunks
  %record = load ptr, ptr getelementptr (i8, ptr @job, i64 ${job.record})
  %skip = call i1 @ended(ptr %record)
  br i1 %skip, label %count_it, label %whose
whose:
  br i1 %front, label %go, label %lend
lend:
  call void @nw_lend(ptr %record)
  br label %go
go:
  call void @serial(ptr %body, ptr %context, i64 %begin, i64 %end)
  br label %count_it
count_it:
  %was = atomicrmw add ptr @done, i32 1 release
  ret i1 true
none:
  ret i1 false
}

; A worker whose index is beyond the present number of threads only sleeps.
define internal ptr @worker(ptr %argument) {
entry:
  %index64 = ptrtoint ptr %argument to i64
  %index = trunc i64 %index64 to i32
  br label %top
top:
  %spins = phi i32 [ 0, %entry ], [ 0, %work ], [ %turn, %idle ], [ 0, %sleep ]
  %seen = load atomic i32, ptr getelementptr (i8, ptr @ticket, i64 4) acquire, align 4
  %threads = load atomic i32, ptr @threads monotonic, align 4
  %others = sub i32 %threads, 1
  %active = icmp slt i32 %index, %others
  br i1 %active, label %work, label %sleep
work:
  %worked = call i1 @claim(i1 false)
  br i1 %worked, label %top, label %idle
idle:
  ${pause}
  %turn = add i32 %spins, 1
  %more = icmp slt i32 %turn, ${spins}
  br i1 %more, label %top, label %sleep
sleep:
  %one = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %woken = call i64 (i64, ...) @syscall(i64 ${futex}, ptr getelementptr (i8, ptr @ticket, i64 4),
      i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %less = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %top
}

; Signals stay with Python's threads: workers are born with all of them blocked.
define internal void @start_workers(i32 %wanted) {
entry:
  %thread = alloca i64
  %every = alloca [128 x i8], align 8
  %before = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %every, i8 -1, i64 128, i1 false)
  %masked = call i32 @pthread_sigmask(i32 2, ptr %every, ptr %before)
  br label %next
next:
  %index = load i32, ptr @started
  %more = icmp slt i32 %index, %wanted
  br i1 %more, label %create, label %done
create:
  %index64 = zext i32 %index to i64
  %argument = inttoptr i64 %index64 to ptr
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %count, label %fewer
count:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  %started = add i32 %index, 1
  store i32 %started, ptr @started
  br label %next
fewer: ; the system gives no more threads: go on with those there are
  %all = add i32 %index, 1
  store atomic i32 %all, ptr @threads seq_cst, align 4
  br label %done
done:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)

; True when this process owns the pool's state. In a child of fork the first caller resets it.
define internal i1 @own() {
entry:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @owner acquire, align 4
  %mine = icmp eq i32 %owner, %pid
  br i1 %mine, label %yes, label %other
other:
  %resetting = icmp eq i32 %owner, -1
  br i1 %resetting, label %no, label %adopt
adopt:
  %pair = cmpxchg ptr @owner, i32 %owner, i32 -1 acq_rel acquire
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %reset, label %no
reset:
  store atomic i64 0, ptr @ticket seq_cst, align 8
  store atomic i32 0, ptr @done seq_cst, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  store i32 0, ptr @started
  store atomic i32 %pid, ptr @owner release, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @lock() {
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  ret i1 %won
}

define internal void @publish(ptr %body, ptr %context, i64 %count, i32 %threads) {
entry:
  %threads64 = zext i32 %threads to i64
  %fine = shl i64 %threads64, 4
  %coarse = shl i64 %threads64, 3
  %few = icmp ule i64 %count, %fine
  %chunks = select i1 %few, i64 %count, i64 %coarse
  store ptr %body, ptr getelementptr (i8, ptr @job, i64 ${job.body})
  store ptr %context, ptr getelementptr (i8, ptr @job, i64 ${job.context})
  store i64 %count, ptr getelementptr (i8, ptr @job, i64 ${job.count})
  store i64 %chunks, ptr getelementptr (i8, ptr @job, i64 ${job.chunks})
  %record = call ptr @nw_record()
  store ptr %record, ptr getelementptr (i8, ptr @job, i64 ${job.record})
  store atomic i32 0, ptr @done monotonic, align 4
  %old = load atomic i64, ptr @ticket monotonic, align 8
  %generation = and i64 %old, -4294967296
  %next = add i64 %generation, 4294967296
  %stop = shl i64 %chunks, 16
  %new = or i64 %next, %stop
  store atomic i64 %new, ptr @ticket seq_cst, align 8
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp sgt i32 %sleepers, 0
  br i1 %any, label %wake, label %done
wake:
  %started = load i32, ptr @started
  %others = sub i32 %threads, 1
  %parked = icmp sgt i32 %started, %others
  %helpers = sub i64 %chunks, 1
  %helpers32 = trunc i64 %helpers to i32
  %number = select i1 %parked, i32 2147483647, i32 %helpers32
  %woken = call i64 (i64, ...) @syscall(i64 ${futex}, ptr getelementptr (i8, ptr @ticket, i64 4),
      i32 129, i32 %number, ptr null, ptr null, i32 0)
  br label %done
done:
  ret void
}

define internal void @wait() {
entry:
  %chunks64 = load i64, ptr getelementptr (i8, ptr @job, i64 ${job.chunks})
  %chunks = trunc i64 %chunks64 to i32
  br label %look
look:
  %turn = phi i32 [ 0, %entry ], [ %next, %spin ], [ %next, %yield ]
  %done = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %done, %chunks
  br i1 %all, label %out, label %spin
spin:
  ${pause}
  %next = add i32 %turn, 1
  %low = and i32 %next, 255
  %often = icmp eq i32 %low, 0
  br i1 %often, label %yield, label %look
yield:
  %status = call i32 @sched_yield()
  %ended = call i1 @nw_poll()
  br label %look
out:
  ret void
}

define void @nw_parallel(ptr %body, ptr %context, i64 %count) {
entry:
  %threads0 = load atomic i32, ptr @threads monotonic, align 4
  %several = icmp sgt i32 %threads0, 1
  %many = icmp sgt i64 %count, 1
  %both = and i1 %several, %many
  br i1 %both, label %owned, label %one
one:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %alone, label %done
alone:
  call void @serial(ptr %body, ptr %context, i64 0, i64 %count)
  br label %done
owned:
  %mine = call i1 @own()
  br i1 %mine, label %try, label %alone
try:
  %won = call i1 @lock()
  br i1 %won, label %locked, label %alone
locked:
  %wanted = sub i32 %threads0, 1
  %started = load i32, ptr @started
  %short = icmp slt i32 %started, %wanted
  br i1 %short, label %start, label %launch
start:
  call void @start_workers(i32 %wanted)
  br label %launch
launch:
  call void @publish(ptr %body, ptr %context, i64 %count, i32 %threads0)
  br label %work
work:
  %worked = call i1 @claim(i1 true)
  br i1 %worked, label %work, label %finish
finish:
  call void @wait()
  store atomic i32 0, ptr @busy release, align 4
  br label %done
done:
  ret void
}
