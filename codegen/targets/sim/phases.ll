; Barriers with phases in LLVM IR: mbarriers in shared memory, and the named barriers of a block.
;
; A phase ends when all arrivals are there and all bytes have landed that were expected.

define internal i1 @complete_if(i64 %index) {
entry:
  %bar = call ptr @bar(i64 %index)
  %pending = call i64 @get(ptr %bar, i64 ${bar.pending})
  %tx = call i64 @get(ptr %bar, i64 ${bar.bytes})
  %rest = or i64 %pending, %tx
  %over = icmp eq i64 %rest, 0
  br i1 %over, label %check, label %fine
check:
  %flying = call i64 @get(ptr %bar, i64 ${bar.flying})
  %early = icmp ne i64 %flying, 0
  br i1 %early, label %bad, label %complete
bad:
  %me = call i64 @me()
  call void @tell_bar(i64 ${kind.EARLY}, i64 %index, i64 %me)
  ret i1 true
complete:
  call void @complete(i64 %index)
  br label %fine
fine:
  ret i1 false
}

define internal void @complete(i64 %index) {
entry:
  %bar = call ptr @bar(i64 %index)
  %phase = call i64 @get(ptr %bar, i64 ${bar.phase})
  %next = add i64 %phase, 1
  call void @set(ptr %bar, i64 ${bar.phase}, i64 %next)
  %expected = call i64 @get(ptr %bar, i64 ${bar.expected})
  %is_named = icmp ult i64 %index, ${NAMED_BARS}
  %pending = select i1 %is_named, i64 0, i64 %expected
  call void @set(ptr %bar, i64 ${bar.pending}, i64 %pending)
  %threads = call i64 @threads()
  %column = add i64 %threads, %index
  %now = call i32 @tick()
  %known = call ptr @bar_row(ptr %bar, i64 0)
  %p = getelementptr i32, ptr %known, i64 %column
  %width = load i64, ptr @width
  %checked = icmp ne i64 %width, 0
  br i1 %checked, label %mark, label %wake
mark:
  store i32 %now, ptr %p
  %seen = call ptr @bar_row(ptr %bar, i64 1)
  %known_then = call ptr @bar_row(ptr %bar, i64 2)
  %seen_then = call ptr @bar_row(ptr %bar, i64 3)
  call void @copy_row(ptr %known_then, ptr %known)
  call void @copy_row(ptr %seen_then, ptr %seen)
  br label %wake
wake:
  %index32 = trunc i64 %index to i32
  %waiting = or i32 %index32, ${state.BLOCKED}
  br label %each
each:
  %t = phi i64 [ 0, %wake ], [ %t1, %done ]
  %state = call i32 @state_of(i64 %t)
  %mine = icmp eq i32 %state, %waiting
  br i1 %mine, label %let_go, label %done
let_go:
  call void @acquire(i64 %t, ptr %bar)
  call void @put_state(i64 %t, i32 ${state.READY})
  br label %done
done:
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %each, label %out
out:
  ret void
}

; A thread waits at the barrier of a number, or arrives there, as one of so many.
define i1 @nw_phase_named(i64 %index, i64 %count, ptr %name, i1 %waits) {
entry:
  %me = call i64 @me()
  %bar = call ptr @bar(i64 %index)
  %name_n = ptrtoint ptr %name to i64
  call void @set(ptr %bar, i64 ${bar.name}, i64 %name_n)
  call void @set(ptr %bar, i64 ${bar.element}, i64 %index)
  %left = call i64 @get(ptr %bar, i64 ${bar.pending})
  %first = icmp eq i64 %left, 0
  br i1 %first, label %open, label %join
open:
  call void @set(ptr %bar, i64 ${bar.expected}, i64 %count)
  call void @set(ptr %bar, i64 ${bar.pending}, i64 %count)
  br label %arrive
join:
  %expected = call i64 @get(ptr %bar, i64 ${bar.expected})
  %same = icmp eq i64 %expected, %count
  br i1 %same, label %arrive, label %bad
bad:
  call void @tell_bar(i64 ${kind.COUNTS}, i64 %index, i64 %me)
  ret i1 true
arrive:
  call void @release(ptr %bar)
  %now = call i64 @get(ptr %bar, i64 ${bar.pending})
  %less = sub i64 %now, 1
  call void @set(ptr %bar, i64 ${bar.pending}, i64 %less)
  %index32 = trunc i64 %index to i32
  %blocked = or i32 %index32, ${state.BLOCKED}
  %state = select i1 %waits, i32 %blocked, i32 ${state.READY}
  call void @put_state(i64 %me, i32 %state)
  %wrong = call i1 @complete_if(i64 %index)
  ret i1 %wrong
}

; mbarriers. The word in shared memory has a sign and the barrier's number.

define i1 @nw_phase_init(ptr %record, ptr %at, i64 %count) {
entry:
  %bad = call i1 @nw_sim_access(ptr %record, ptr %at, i64 8, i64 ${how.WRITES_ALIGNED})
  br i1 %bad, label %fault, label %known
known:
  %old = call i64 @index_of(ptr %at)
  %again = icmp sge i64 %old, 0
  br i1 %again, label %twice, label %new
twice:
  %who = call i64 @me()
  call void @tell_bar(i64 ${kind.AGAIN}, i64 %old, i64 %who)
  ret i1 true
new:
  %next = load i64, ptr @bar_count
  %room = icmp ult i64 %next, ${BARS}
  br i1 %room, label %take, label %full
full:
  call void @tell_bar(i64 ${kind.TOO_MANY}, i64 0, i64 0)
  ret i1 true
take:
  %more = add i64 %next, 1
  store i64 %more, ptr @bar_count
  %bar = call ptr @bar(i64 %next)
  %at_n = ptrtoint ptr %at to i64
  %base = call i64 @get(ptr %record, i64 ${sim_record.base})
  %offset = sub i64 %at_n, %base
  %element = lshr i64 %offset, 3
  %static = call ptr @get_ptr(ptr %record, i64 ${sim_record.static})
  %name = call i64 @get(ptr %static, i64 ${buffer.name})
  %me = call i64 @me()
  call void @set(ptr %bar, i64 ${bar.address}, i64 %at_n)
  call void @set(ptr %bar, i64 ${bar.name}, i64 %name)
  call void @set(ptr %bar, i64 ${bar.element}, i64 %element)
  call void @set(ptr %bar, i64 ${bar.phase}, i64 0)
  call void @set(ptr %bar, i64 ${bar.expected}, i64 %count)
  call void @set(ptr %bar, i64 ${bar.pending}, i64 %count)
  call void @set(ptr %bar, i64 ${bar.bytes}, i64 0)
  %number = add i64 %me, 1
  call void @set(ptr %bar, i64 ${bar.maker}, i64 %number)
  %word = or i64 %next, ${SIGN}
  store i64 %word, ptr %at, align 1
  ret i1 false
fault:
  ret i1 true
}

define internal i64 @index_of(ptr %at) {
entry:
  %word = load i64, ptr %at, align 1
  %sign = and i64 %word, -4294967296
  %index = and i64 %word, 4294967295
  %is_sign = icmp eq i64 %sign, ${SIGN}
  %count = load i64, ptr @bar_count
  %is_known = icmp ult i64 %index, %count
  %maybe = and i1 %is_sign, %is_known
  br i1 %maybe, label %look, label %no
look:
  %bar = call ptr @bar(i64 %index)
  %there = call i64 @get(ptr %bar, i64 ${bar.address})
  %at_n = ptrtoint ptr %at to i64
  %same = icmp eq i64 %there, %at_n
  br i1 %same, label %yes, label %no
yes:
  ret i64 %index
no:
  ret i64 -1
}

; What this thread has initialized is seen by the asynchronous proxy from now on.
define void @nw_phase_fence_init() {
entry:
  %me = call i64 @me()
  %number = add i64 %me, 1
  %count = load i64, ptr @bar_count
  br label %test
test:
  %i = phi i64 [ ${NAMED_BARS}, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %next, label %out
next:
  %bar = call ptr @bar(i64 %i)
  %maker = call i64 @get(ptr %bar, i64 ${bar.maker})
  %mine = icmp eq i64 %maker, %number
  %left = select i1 %mine, i64 0, i64 %maker
  call void @set(ptr %bar, i64 ${bar.maker}, i64 %left)
  %i1 = add i64 %i, 1
  br label %test
out:
  ret void
}

; Whether the asynchronous proxy may not see the initialization of an mbarrier, which is told.
define internal i1 @is_fresh(i64 %index) {
entry:
  %bar = call ptr @bar(i64 %index)
  %maker = call i64 @get(ptr %bar, i64 ${bar.maker})
  %fresh = icmp ne i64 %maker, 0
  br i1 %fresh, label %tell, label %out
tell:
  %me = call i64 @me()
  call void @tell_bar(i64 ${kind.FRESH}, i64 %index, i64 %me)
  br label %out
out:
  ret i1 %fresh
}

; An mbarrier whose word is not there any more as a block ends: its place was used for something
; else, and nothing has invalidated it.
define internal void @check_words() {
entry:
  %count = load i64, ptr @bar_count
  br label %test
test:
  %i = phi i64 [ ${NAMED_BARS}, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %bar = call ptr @bar(i64 %i)
  %at_n = call i64 @get(ptr %bar, i64 ${bar.address})
  %at = inttoptr i64 %at_n to ptr
  %found = call i64 @index_of(ptr %at)
  %there = icmp eq i64 %found, %i
  br i1 %there, label %next, label %tell
tell:
  call void @tell_bar(i64 ${kind.REPLACED}, i64 %i, i64 0)
  br label %out
next:
  %i1 = add i64 %i, 1
  br label %test
out:
  ret void
}

; The number of an mbarrier that this thread uses, which is a read of its word; -1 after a fault.
define internal i64 @mbarrier(ptr %record, ptr %at) {
entry:
  %bad = call i1 @nw_sim_access(ptr %record, ptr %at, i64 8, i64 ${how.ALIGNED})
  br i1 %bad, label %no, label %find
find:
  %index = call i64 @index_of(ptr %at)
  %fine = icmp sge i64 %index, 0
  br i1 %fine, label %yes, label %bare
bare:
  call void @nw_sim_tell(i64 ${kind.BARE}, ptr %record, ptr %at)
  br label %no
yes:
  ret i64 %index
no:
  ret i64 -1
}

define i1 @nw_phase_arrive(ptr %record, ptr %at, i64 %bytes) {
entry:
  %index = call i64 @mbarrier(ptr %record, ptr %at)
  %bad = icmp slt i64 %index, 0
  br i1 %bad, label %fault, label %arrive
arrive:
  %wrong = call i1 @arrive(i64 %index, i64 %bytes)
  ret i1 %wrong
fault:
  ret i1 true
}

define internal i1 @arrive(i64 %index, i64 %bytes) {
entry:
  %bar = call ptr @bar(i64 %index)
  %tx = call i64 @get(ptr %bar, i64 ${bar.bytes})
  %tx1 = add i64 %tx, %bytes
  call void @set(ptr %bar, i64 ${bar.bytes}, i64 %tx1)
  call void @release(ptr %bar)
  %pending = call i64 @get(ptr %bar, i64 ${bar.pending})
  %none = icmp eq i64 %pending, 0
  br i1 %none, label %over, label %count
over:
  %me = call i64 @me()
  call void @tell_bar(i64 ${kind.ARRIVALS}, i64 %index, i64 %me)
  ret i1 true
count:
  %less = sub i64 %pending, 1
  call void @set(ptr %bar, i64 ${bar.pending}, i64 %less)
  %wrong = call i1 @complete_if(i64 %index)
  ret i1 %wrong
}

; More bytes are on their way to an mbarrier; nobody arrives.
define i1 @nw_phase_expect(ptr %record, ptr %at, i64 %bytes) {
entry:
  %index = call i64 @mbarrier(ptr %record, ptr %at)
  %bad = icmp slt i64 %index, 0
  br i1 %bad, label %fault, label %add
add:
  %bar = call ptr @bar(i64 %index)
  %tx = call i64 @get(ptr %bar, i64 ${bar.bytes})
  %tx1 = add i64 %tx, %bytes
  call void @set(ptr %bar, i64 ${bar.bytes}, i64 %tx1)
  ret i1 false
fault:
  ret i1 true
}

; Wait until the phase of a parity has ended: this thread goes on at once, or is woken.
define i1 @nw_phase_wait(ptr %record, ptr %at, i64 %parity) {
entry:
  %index = call i64 @mbarrier(ptr %record, ptr %at)
  %bad = icmp slt i64 %index, 0
  br i1 %bad, label %fault, label %look
look:
  %me = call i64 @me()
  %bar = call ptr @bar(i64 %index)
  %phase = call i64 @get(ptr %bar, i64 ${bar.phase})
  %odd = xor i64 %phase, %parity
  %differs = and i64 %odd, 1
  %over = icmp ne i64 %differs, 0
  br i1 %over, label %go, label %block
go:
  call void @acquire(i64 %me, ptr %bar)
  call void @put_state(i64 %me, i32 ${state.READY})
  ret i1 false
block:
  %index32 = trunc i64 %index to i32
  %state = or i32 %index32, ${state.BLOCKED}
  call void @put_state(i64 %me, i32 %state)
  ret i1 false
fault:
  ret i1 true
}
