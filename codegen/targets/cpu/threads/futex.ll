; The thread pool's workers in LLVM IR, which sleep on a futex, and ``nw_parallel`` over them.

; The ticket has the generation in the high half (the futex word); in the low half the chunks left:
; 16 bits for the end of those not yet claimed, 16 bits for their beginning (at most 16,384 chunks).
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i32 @getpid()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
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

define internal i1 @claim(ptr %pool, i1 %front) {
entry:
  %ticket_p = getelementptr i8, ptr %pool, i64 ${pool.ticket}
  br label %try
try:
  %old = load atomic i64, ptr %ticket_p acquire, align 8
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
  %pair = cmpxchg ptr %ticket_p, i64 %old, i64 %new acq_rel acquire
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %run, label %try
run:
  %job = getelementptr i8, ptr %pool, i64 ${pool.job}
  %body_p = getelementptr i8, ptr %job, i64 ${job.body}
  %body = load ptr, ptr %body_p
  %context_p = getelementptr i8, ptr %job, i64 ${job.context}
  %context = load ptr, ptr %context_p
  %count_p = getelementptr i8, ptr %job, i64 ${job.count}
  %count = load i64, ptr %count_p
  %chunks_p = getelementptr i8, ptr %job, i64 ${job.chunks}
  %chunks = load i64, ptr %chunks_p
  %after = add i64 %index, 1
  %scaled = mul i64 %index, %count
  %scaled_after = mul i64 %after, %count
  %begin = udiv i64 %scaled, %chunks
  %end = udiv i64 %scaled_after, %chunks
  %record_p = getelementptr i8, ptr %job, i64 ${job.record}
  %record = load ptr, ptr %record_p
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
  %done_p = getelementptr i8, ptr %pool, i64 ${pool.done}
  %was = atomicrmw add ptr %done_p, i32 1 release
  ret i1 true
none:
  ret i1 false
}

; A worker whose index is beyond the present number of threads only sleeps; with 0 threads it ends.
define internal ptr @worker(ptr %pool) {
entry:
  %seat = alloca [${sizeof.seat} x i8], align 8
  call void @worker_begins(ptr %pool, ptr %seat)
  %born_p = getelementptr i8, ptr %pool, i64 ${pool.born}
  %index = atomicrmw add ptr %born_p, i32 1 monotonic
  %ticket_p = getelementptr i8, ptr %pool, i64 ${pool.ticket}
  %generation_p = getelementptr i8, ptr %ticket_p, i64 4
  %threads_p = getelementptr i8, ptr %pool, i64 ${pool.threads}
  %sleepers_p = getelementptr i8, ptr %pool, i64 ${pool.sleepers}
  br label %top
top:
  %spins = phi i32 [ 0, %entry ], [ 0, %work ], [ %turn, %idle ], [ 0, %sleep ]
  %seen = load atomic i32, ptr %generation_p acquire, align 4
  %threads = load atomic i32, ptr %threads_p monotonic, align 4
  %others = sub i32 %threads, 1
  %active = icmp slt i32 %index, %others
  br i1 %active, label %work, label %rest
work:
  %worked = call i1 @claim(ptr %pool, i1 false)
  br i1 %worked, label %top, label %idle
idle:
  ${pause}
  %turn = add i32 %spins, 1
  %more = icmp slt i32 %turn, ${spins}
  br i1 %more, label %top, label %sleep
rest:
  %over = icmp eq i32 %threads, 0
  br i1 %over, label %end, label %sleep
sleep:
  %one = atomicrmw add ptr %sleepers_p, i32 1 seq_cst
  %woken = call i64 (i64, ...) @syscall(i64 ${futex}, ptr %generation_p, i32 128, i32 %seen,
      ptr null, ptr null, i32 0)
  %less = atomicrmw sub ptr %sleepers_p, i32 1 seq_cst
  br label %top
end:
  call void @worker_ends(ptr %seat)
  ret ptr null
}

; Signals stay with the program's own threads: workers are born with all of them blocked.
define internal void @start_workers(ptr %pool, i32 %wanted) {
entry:
  %started_p = getelementptr i8, ptr %pool, i64 ${pool.started}
  %threads_p = getelementptr i8, ptr %pool, i64 ${pool.threads}
  %thread = alloca i64
  %every = alloca [128 x i8], align 8
  %before = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %every, i8 -1, i64 128, i1 false)
  %masked = call i32 @pthread_sigmask(i32 2, ptr %every, ptr %before)
  br label %next
next:
  %index = load i32, ptr %started_p
  %more = icmp slt i32 %index, %wanted
  br i1 %more, label %create, label %done
create:
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %pool)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %count, label %fewer
count:
  %id = load i64, ptr %thread
  call void @worker_created(ptr %pool, i32 %index, i64 %id)
  %started = add i32 %index, 1
  store i32 %started, ptr %started_p
  br label %next
fewer: ; the system gives no more threads: go on with those there are
  %all = add i32 %index, 1
  store atomic i32 %all, ptr %threads_p seq_cst, align 4
  br label %done
done:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)

; True when this process owns the pool's state. In a child of fork the first caller resets it.
define internal i1 @own(ptr %pool) {
entry:
  %owner_p = getelementptr i8, ptr %pool, i64 ${pool.owner}
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr %owner_p acquire, align 4
  %mine = icmp eq i32 %owner, %pid
  br i1 %mine, label %yes, label %other
other:
  %resetting = icmp eq i32 %owner, -1
  br i1 %resetting, label %no, label %adopt
adopt:
  %pair = cmpxchg ptr %owner_p, i32 %owner, i32 -1 acq_rel acquire
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %reset, label %no
reset:
  %ticket_p = getelementptr i8, ptr %pool, i64 ${pool.ticket}
  store atomic i64 0, ptr %ticket_p seq_cst, align 8
  %done_p = getelementptr i8, ptr %pool, i64 ${pool.done}
  store atomic i32 0, ptr %done_p seq_cst, align 4
  %sleepers_p = getelementptr i8, ptr %pool, i64 ${pool.sleepers}
  store atomic i32 0, ptr %sleepers_p seq_cst, align 4
  %busy_p = getelementptr i8, ptr %pool, i64 ${pool.busy}
  store atomic i32 0, ptr %busy_p seq_cst, align 4
  %started_p = getelementptr i8, ptr %pool, i64 ${pool.started}
  store i32 0, ptr %started_p
  %born_p = getelementptr i8, ptr %pool, i64 ${pool.born}
  store atomic i32 0, ptr %born_p seq_cst, align 4
  store atomic i32 %pid, ptr %owner_p release, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @lock(ptr %pool) {
  %busy_p = getelementptr i8, ptr %pool, i64 ${pool.busy}
  %pair = cmpxchg ptr %busy_p, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  ret i1 %won
}

define internal void @publish(ptr %pool, ptr %body, ptr %context, i64 %count, i32 %threads) {
entry:
  %threads64 = zext i32 %threads to i64
  %fine = shl i64 %threads64, 4
  %coarse = shl i64 %threads64, 3
  %few = icmp ule i64 %count, %fine
  %chunks = select i1 %few, i64 %count, i64 %coarse
  %job = getelementptr i8, ptr %pool, i64 ${pool.job}
  %body_p = getelementptr i8, ptr %job, i64 ${job.body}
  store ptr %body, ptr %body_p
  %context_p = getelementptr i8, ptr %job, i64 ${job.context}
  store ptr %context, ptr %context_p
  %count_p = getelementptr i8, ptr %job, i64 ${job.count}
  store i64 %count, ptr %count_p
  %chunks_p = getelementptr i8, ptr %job, i64 ${job.chunks}
  store i64 %chunks, ptr %chunks_p
  %record = call ptr @nw_record()
  %record_p = getelementptr i8, ptr %job, i64 ${job.record}
  store ptr %record, ptr %record_p
  %done_p = getelementptr i8, ptr %pool, i64 ${pool.done}
  store atomic i32 0, ptr %done_p monotonic, align 4
  %ticket_p = getelementptr i8, ptr %pool, i64 ${pool.ticket}
  %old = load atomic i64, ptr %ticket_p monotonic, align 8
  %generation = and i64 %old, -4294967296
  %next = add i64 %generation, 4294967296
  %stop = shl i64 %chunks, 16
  %new = or i64 %next, %stop
  store atomic i64 %new, ptr %ticket_p seq_cst, align 8
  %sleepers_p = getelementptr i8, ptr %pool, i64 ${pool.sleepers}
  %sleepers = load atomic i32, ptr %sleepers_p seq_cst, align 4
  %any = icmp sgt i32 %sleepers, 0
  br i1 %any, label %wake, label %done
wake:
  %started_p = getelementptr i8, ptr %pool, i64 ${pool.started}
  %started = load i32, ptr %started_p
  %others = sub i32 %threads, 1
  %parked = icmp sgt i32 %started, %others
  %helpers = sub i64 %chunks, 1
  %helpers32 = trunc i64 %helpers to i32
  %number = select i1 %parked, i32 2147483647, i32 %helpers32
  call void @wake(ptr %ticket_p, i32 %number)
  br label %done
done:
  ret void
}

define internal void @wake(ptr %ticket_p, i32 %number) {
  %generation_p = getelementptr i8, ptr %ticket_p, i64 4
  %woken = call i64 (i64, ...) @syscall(i64 ${futex}, ptr %generation_p, i32 129, i32 %number,
      ptr null, ptr null, i32 0)
  ret void
}

define internal void @wait(ptr %pool) {
entry:
  %job = getelementptr i8, ptr %pool, i64 ${pool.job}
  %chunks_p = getelementptr i8, ptr %job, i64 ${job.chunks}
  %chunks64 = load i64, ptr %chunks_p
  %chunks = trunc i64 %chunks64 to i32
  %done_p = getelementptr i8, ptr %pool, i64 ${pool.done}
  br label %look
look:
  %turn = phi i32 [ 0, %entry ], [ %next, %spin ], [ %next, %yield ]
  %done = load atomic i32, ptr %done_p acquire, align 4
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
  %pool = call ptr @pool_here()
  %threads_p = getelementptr i8, ptr %pool, i64 ${pool.threads}
  %threads0 = load atomic i32, ptr %threads_p monotonic, align 4
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
  %mine = call i1 @own(ptr %pool)
  br i1 %mine, label %try, label %alone
try:
  %won = call i1 @lock(ptr %pool)
  br i1 %won, label %locked, label %alone
locked:
  %wanted = sub i32 %threads0, 1
  %started_p = getelementptr i8, ptr %pool, i64 ${pool.started}
  %started = load i32, ptr %started_p
  %short = icmp slt i32 %started, %wanted
  br i1 %short, label %start, label %launch
start:
  call void @start_workers(ptr %pool, i32 %wanted)
  br label %launch
launch:
  call void @publish(ptr %pool, ptr %body, ptr %context, i64 %count, i32 %threads0)
  br label %work
work:
  %worked = call i1 @claim(ptr %pool, i1 true)
  br i1 %worked, label %work, label %finish
finish:
  call void @wait(ptr %pool)
  %busy_p = getelementptr i8, ptr %pool, i64 ${pool.busy}
  store atomic i32 0, ptr %busy_p release, align 4
  br label %done
done:
  ret void
}
