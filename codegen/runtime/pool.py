"""The thread pool and the per-thread scratch memory, written in LLVM IR.

One pool per process serves every executable and every Python thread:

``void nw_parallel(ptr body, ptr context, i64 count)``
    calls ``body(context, begin, end)`` on chunks that cover ``0 .. count`` once, and returns when
    all of them have run. Threads claim chunks with a compare-exchange on ``ticket``, which holds
    the launch's generation and the chunks left; so a worker that was held up since an earlier
    launch can never claim a chunk of this one by mistake. The caller claims from the front, the
    workers from the back: from one kernel to the next, a core finds its part in its own cache.
    Calls from inside a body, and calls while another thread uses the pool, run serially in the
    caller. Once the caller's call has been interrupted, chunks not yet begun are skipped.
``ptr nw_scratch(i64 bytes)``
    memory of the calling thread, 64-byte aligned, distinct from what the same thread has been
    given before; it is taken back when the enclosing body returns, or by
``i64 nw_scratch_mark()``, ``void nw_scratch_release(i64 mark)``
    which take back everything given since the mark.
``void nw_pool_init(i32 threads)``, ``void nw_pool_set_threads(i32)``, ``i32 nw_pool_threads()``
    the first once per process, before anything else.

Workers start at the first parallel call, spin about 2,000 turns for more work and then sleep on a
futex. A child of ``fork`` has no workers: the pid is compared at every launch, and the child starts
its own. Where there is no futex (anything but Linux on x86-64 and aarch64) calls run serially.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from types import MappingProxyType

from ...ir.target import Target

SPINS = 2000  # turns that an idle worker spins before it sleeps, about 20 microseconds

_FUTEX: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "x86_64": {"futex": "202", "pause": "call void @llvm.x86.sse2.pause()",
                   "declare": "declare void @llvm.x86.sse2.pause()"},
        "aarch64": {"futex": "98", "pause": "call void @llvm.aarch64.hint(i32 1)",
                    "declare": "declare void @llvm.aarch64.hint(i32)"},
    }
)  # fmt: skip


def module_text(target: Target) -> str:
    """The pool's LLVM module for a target."""
    machine, _, system = target.triple.partition("-")
    parts = _FUTEX.get(machine) if "linux" in system else None
    head = f'target triple = "{target.triple}"\n'
    if parts is None:
        return head + _SCRATCH + _SERIAL + _ONE_THREAD
    threaded = Template(_WORKERS + _LAUNCH).substitute(parts, spins=str(SPINS))
    return head + _SCRATCH + _SERIAL + threaded


# A thread's scratch is a stack of segments. A segment's first 64 bytes are its header:
# 0 the segment below, 8 its size, 16 the bytes given out, 24 the bytes below it.
_SCRATCH = """
@scratch_key = internal global i64 0
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @abort() noreturn
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @llvm.smax.i32(i32, i32)

define internal ptr @scratch_top() {
  %key = load i64, ptr @scratch_key
  %top = call ptr @pthread_getspecific(i64 %key)
  ret ptr %top
}

define internal void @scratch_set(ptr %segment) {
  %key = load i64, ptr @scratch_key
  %status = call i32 @pthread_setspecific(i64 %key, ptr %segment)
  ret void
}

define internal void @scratch_free(ptr %segment) {
entry:
  br label %next
next:
  %at = phi ptr [ %segment, %entry ], [ %below, %drop ]
  %end = icmp eq ptr %at, null
  br i1 %end, label %done, label %drop
drop:
  %below = load ptr, ptr %at
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
  %size_p = getelementptr i8, ptr %below, i64 8
  %used_p = getelementptr i8, ptr %below, i64 16
  %start_p = getelementptr i8, ptr %below, i64 24
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
  %total = add i64 %room, 64
  %status = call i32 @posix_memalign(ptr %slot, i64 64, i64 %total)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %good, label %bad
bad:
  call void @abort()
  unreachable
good:
  %segment = load ptr, ptr %slot
  store ptr %below, ptr %segment
  %new_size = getelementptr i8, ptr %segment, i64 8
  %new_used = getelementptr i8, ptr %segment, i64 16
  %new_start = getelementptr i8, ptr %segment, i64 24
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
  %size_p = getelementptr i8, ptr %top, i64 8
  %used_p0 = getelementptr i8, ptr %top, i64 16
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
  %used_p = getelementptr i8, ptr %segment, i64 16
  %used = load i64, ptr %used_p
  %after = add i64 %used, %round
  store i64 %after, ptr %used_p
  %offset = add i64 %used, 64
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
  %used_p = getelementptr i8, ptr %top, i64 16
  %start_p = getelementptr i8, ptr %top, i64 24
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
  %rest = load ptr, ptr %top0
  call void @scratch_free(ptr %rest)
  store ptr null, ptr %top0
  %empty_used = getelementptr i8, ptr %top0, i64 16
  %empty_start = getelementptr i8, ptr %top0, i64 24
  store i64 0, ptr %empty_used
  store i64 0, ptr %empty_start
  ret void
next:
  %top = phi ptr [ %top0, %some ], [ %below, %drop ]
  %start_p = getelementptr i8, ptr %top, i64 24
  %start = load i64, ptr %start_p
  %under = icmp ult i64 %mark, %start
  br i1 %under, label %drop, label %cut
drop:
  %below = load ptr, ptr %top
  call void @free(ptr %top)
  call void @scratch_set(ptr %below)
  br label %next
cut:
  %used_p = getelementptr i8, ptr %top, i64 16
  %used = sub i64 %mark, %start
  store i64 %used, ptr %used_p
  br label %done
done:
  ret void
}
"""

_SERIAL = """
@threads = internal global i32 1, align 64

define internal void @serial(ptr %body, ptr %context, i64 %begin, i64 %end) {
  %mark = call i64 @nw_scratch_mark()
  call void %body(ptr %context, i64 %begin, i64 %end)
  call void @nw_scratch_release(i64 %mark)
  ret void
}

define void @nw_pool_set_threads(i32 %threads) {
  %some = call i32 @llvm.smax.i32(i32 %threads, i32 1)
  store atomic i32 %some, ptr @threads seq_cst, align 4
  ret void
}

define i32 @nw_pool_threads() {
  %threads = load atomic i32, ptr @threads seq_cst, align 4
  ret i32 %threads
}

define void @nw_pool_init(i32 %threads) {
  %status = call i32 @pthread_key_create(ptr @scratch_key, ptr @scratch_free)
  call void @nw_pool_set_threads(i32 %threads)
  ret void
}
"""

_ONE_THREAD = """
define void @nw_parallel(ptr %body, ptr %context, i64 %count) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %run, label %done
run:
  call void @serial(ptr %body, ptr %context, i64 0, i64 %count)
  br label %done
done:
  ret void
}
"""

# ticket: the generation in the high half (the futex word); in the low half the chunks left: 16 bits
# for the end of those not yet claimed, 16 bits for their beginning (at most 16,384 chunks).
# job: 0 body, 8 context, 16 count, 24 chunks, 32 the caller's record (see ``interrupts_ir``);
# stable from a launch until its last chunk is done.
_WORKERS = """
@ticket = internal global i64 0, align 64
@done = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@job = internal global [40 x i8] zeroinitializer, align 64
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
$declare

; Has the call that the job is part of been interrupted?
define internal i1 @ended(ptr %record) {
entry:
  %none = icmp eq ptr %record, null
  br i1 %none, label %no, label %look
look:
  %stop = load atomic i32, ptr %record monotonic, align 4
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
  %body = load ptr, ptr @job
  %context = load ptr, ptr getelementptr (i8, ptr @job, i64 8)
  %count = load i64, ptr getelementptr (i8, ptr @job, i64 16)
  %chunks = load i64, ptr getelementptr (i8, ptr @job, i64 24)
  %after = add i64 %index, 1
  %scaled = mul i64 %index, %count
  %scaled_after = mul i64 %after, %count
  %begin = udiv i64 %scaled, %chunks
  %end = udiv i64 %scaled_after, %chunks
  %record = load ptr, ptr getelementptr (i8, ptr @job, i64 32)
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
  $pause
  %turn = add i32 %spins, 1
  %more = icmp slt i32 %turn, $spins
  br i1 %more, label %top, label %sleep
sleep:
  %one = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %woken = call i64 (i64, ...) @syscall(i64 $futex, ptr getelementptr (i8, ptr @ticket, i64 4),
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
"""

_LAUNCH = """
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
  store ptr %body, ptr @job
  store ptr %context, ptr getelementptr (i8, ptr @job, i64 8)
  store i64 %count, ptr getelementptr (i8, ptr @job, i64 16)
  store i64 %chunks, ptr getelementptr (i8, ptr @job, i64 24)
  %record = call ptr @nw_record()
  store ptr %record, ptr getelementptr (i8, ptr @job, i64 32)
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
  %woken = call i64 (i64, ...) @syscall(i64 $futex, ptr getelementptr (i8, ptr @ticket, i64 4),
      i32 129, i32 %number, ptr null, ptr null, i32 0)
  br label %done
done:
  ret void
}

define internal void @wait() {
entry:
  %chunks64 = load i64, ptr getelementptr (i8, ptr @job, i64 24)
  %chunks = trunc i64 %chunks64 to i32
  br label %look
look:
  %turn = phi i32 [ 0, %entry ], [ %next, %spin ], [ %next, %yield ]
  %done = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %done, %chunks
  br i1 %all, label %out, label %spin
spin:
  $pause
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
"""
