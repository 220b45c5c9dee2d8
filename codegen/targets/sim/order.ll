; Which accesses of a block's threads are ordered, in LLVM IR, where barriers are for some of them.
;
; A kernel whose threads wait at such barriers (``phases.ll``) has this text in its module.
; Threads of a block are then ordered pairwise: row t of ``@known`` has for each thread since when
; its accesses are not ordered before what t does, and for each mbarrier since when its copies are
; not. ``@seen`` has the same for the asynchronous proxy: what threads wrote before a fence that t
; knows of. Who arrives adds its rows to the barrier's; who waits takes what they were when the
; phase ended.
;
; Without checks a row has no columns, and nobody looks at it.

@core = internal global ptr null
@width = internal global i64 0 ; columns of a row
@known = internal global ptr null
@seen = internal global ptr null
@joined = internal global ptr null
@bars = internal global ptr null
@bar_count = internal global i64 0
@flights = internal global ptr null ; what is under way, in no order
@flight_count = internal global i64 0
@flight_room = internal global i64 0

@nw_phase_hooks = internal constant { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr } { ptr @open_phases,
    ptr @begin_phases, ptr @end_phases, ptr @unordered, ptr @unfenced, ptr @meet, ptr @progress,
    ptr @stuck }

; The runtime's state.

define internal i64 @get(ptr %record, i64 %offset) alwaysinline {
  %p = getelementptr i8, ptr %record, i64 %offset
  %value = load i64, ptr %p
  ret i64 %value
}
define internal ptr @get_ptr(ptr %record, i64 %offset) alwaysinline {
  %p = getelementptr i8, ptr %record, i64 %offset
  %value = load ptr, ptr %p
  ret ptr %value
}
define internal void @set(ptr %record, i64 %offset, i64 %value) alwaysinline {
  %p = getelementptr i8, ptr %record, i64 %offset
  store i64 %value, ptr %p
  ret void
}
define internal ptr @of_core(i64 %offset) alwaysinline {
  %core = load ptr, ptr @core
  %value = call ptr @get_ptr(ptr %core, i64 %offset)
  ret ptr %value
}
define internal i64 @me() alwaysinline {
  %p = call ptr @of_core(i64 ${core.thread})
  %me = load i64, ptr %p
  ret i64 %me
}
define internal i64 @threads() alwaysinline {
  %launch_p = call ptr @of_core(i64 ${core.launch})
  %launch = load ptr, ptr %launch_p
  %x = call i64 @get(ptr %launch, i64 ${launch.block.x})
  %y = call i64 @get(ptr %launch, i64 ${launch.block.y})
  %z = call i64 @get(ptr %launch, i64 ${launch.block.z})
  %xy = mul i64 %x, %y
  %threads = mul i64 %xy, %z
  ret i64 %threads
}
define internal i32 @tick() alwaysinline {
  %p = call ptr @of_core(i64 ${core.time})
  %old = load i32, ptr %p
  %now = add i32 %old, 1
  store i32 %now, ptr %p
  ret i32 %now
}
define internal void @put_state(i64 %t, i32 %state) alwaysinline {
  %base_p = call ptr @of_core(i64 ${core.state})
  %base = load ptr, ptr %base_p
  %p = getelementptr i32, ptr %base, i64 %t
  store i32 %state, ptr %p
  ret void
}
define internal i32 @state_of(i64 %t) alwaysinline {
  %base_p = call ptr @of_core(i64 ${core.state})
  %base = load ptr, ptr %base_p
  %p = getelementptr i32, ptr %base, i64 %t
  %state = load i32, ptr %p
  ret i32 %state
}

; Rows.

define internal ptr @row(ptr %table, i64 %t) alwaysinline {
  %width = load i64, ptr @width
  %at = mul i64 %t, %width
  %row = getelementptr i32, ptr %table, i64 %at
  ret ptr %row
}
define internal ptr @known_row(i64 %t) alwaysinline {
  %table = load ptr, ptr @known
  %row = call ptr @row(ptr %table, i64 %t)
  ret ptr %row
}
define internal ptr @seen_row(i64 %t) alwaysinline {
  %table = load ptr, ptr @seen
  %row = call ptr @row(ptr %table, i64 %t)
  ret ptr %row
}

; to = max(to, from), column by column.
define internal void @join(ptr %to, ptr %from) {
entry:
  %width = load i64, ptr @width
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %width
  br i1 %more, label %next, label %out
next:
  %p = getelementptr i32, ptr %to, i64 %i
  %q = getelementptr i32, ptr %from, i64 %i
  %x = load <8 x i32>, ptr %p, align 4
  %y = load <8 x i32>, ptr %q, align 4
  %z = call <8 x i32> @llvm.umax.v8i32(<8 x i32> %x, <8 x i32> %y)
  store <8 x i32> %z, ptr %p, align 4
  %i1 = add i64 %i, 8
  br label %test
out:
  ret void
}

define internal void @copy_row(ptr %to, ptr %from) alwaysinline {
  %width = load i64, ptr @width
  %bytes = shl i64 %width, 2
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
}

; Launches and blocks.

define internal void @open_phases() {
  %core = call ptr @nw_sim_core()
  store ptr %core, ptr @core
  %threads = call i64 @threads()
  %more = add i64 %threads, ${PADDED_BARS}
  %even = and i64 %more, -8
  %width = select i1 ${checked}, i64 %even, i64 0
  store i64 %width, ptr @width
  %cells = mul i64 %threads, %width
  %all = add i64 %cells, %even
  %bytes = shl i64 %all, 2
  %known = call ptr @nw_scratch(i64 %bytes)
  %seen = call ptr @nw_scratch(i64 %bytes)
  store ptr %known, ptr @known
  store ptr %seen, ptr @seen
  %row = shl i64 %even, 2
  %joined = call ptr @nw_scratch(i64 %row)
  store ptr %joined, ptr @joined
  %four = shl i64 %row, 2
  %size = add i64 %four, ${sizeof.bar}
  %bars_size = mul i64 %size, ${BARS}
  %bars = call ptr @nw_scratch(i64 %bars_size)
  store ptr %bars, ptr @bars
  call void @open_reads()
  ${open}
  ret void
}

define internal i64 @bar_size() alwaysinline {
  %width = load i64, ptr @width
  %four = shl i64 %width, 4
  %size = add i64 %four, ${sizeof.bar}
  ret i64 %size
}
define internal ptr @bar(i64 %index) alwaysinline {
  %size = call i64 @bar_size()
  %bars = load ptr, ptr @bars
  %at = mul i64 %index, %size
  %bar = getelementptr i8, ptr %bars, i64 %at
  ret ptr %bar
}
; Row n of a barrier: what is known and seen by those who arrived, and by the end of the last phase.
define internal ptr @bar_row(ptr %bar, i64 %n) alwaysinline {
  %first = getelementptr i8, ptr %bar, i64 ${sizeof.bar}
  %row = call ptr @row(ptr %first, i64 %n)
  ret ptr %row
}

define internal void @begin_phases() {
  %threads = call i64 @threads()
  %width = load i64, ptr @width
  %cells = mul i64 %threads, %width
  %bytes = shl i64 %cells, 2
  %known = load ptr, ptr @known
  %seen = load ptr, ptr @seen
  call void @llvm.memset.p0.i64(ptr %known, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %seen, i8 0, i64 %bytes, i1 false)
  %size = call i64 @bar_size()
  %bars_size = mul i64 %size, ${BARS}
  %bars = load ptr, ptr @bars
  call void @llvm.memset.p0.i64(ptr %bars, i8 0, i64 %bars_size, i1 false)
  store i64 ${NAMED_BARS}, ptr @bar_count
  store i64 0, ptr @flight_count
  call void @begin_reads()
  ${begin}
  ret void
}

; A copy that is still under way when its block ends would write memory that is another block's.
define internal void @end_phases() {
entry:
  %left = load i64, ptr @flight_count
  %none = icmp eq i64 %left, 0
  %report = call ptr @nw_sim_report()
  %kind = call i64 @get(ptr %report, i64 ${report.kind})
  %told = icmp ne i64 %kind, 0
  br i1 %told, label %out, label %words
words:
  call void @check_words()
  br i1 %none, label %out, label %tell
tell:
  %flights = load ptr, ptr @flights
  %thread = call i64 @get(ptr %flights, i64 ${flight.thread})
  %index = call i64 @get(ptr %flights, i64 ${flight.bar})
  call void @tell_bar(i64 ${kind.LEFT}, i64 %index, i64 %thread)
  br label %out
out:
  ${end}
  call void @end_reads()
  %all = load ptr, ptr @flights
  call void @free(ptr %all)
  store ptr null, ptr @flights
  store i64 0, ptr @flight_room
  store i64 0, ptr @flight_count
  ret void
}

; What orders accesses.

define internal i1 @unordered(i64 %other, i32 %when) {
  %me = call i64 @me()
  %row = call ptr @known_row(i64 %me)
  %p = getelementptr i32, ptr %row, i64 %other
  %known = load i32, ptr %p
  %start_p = call ptr @of_core(i64 ${core.block_since})
  %start = load i32, ptr %start_p
  %since = call i32 @llvm.umax.i32(i32 %known, i32 %start)
  %after = icmp uge i32 %when, %since
  ret i1 %after
}

; What is wrong with an access that the asynchronous proxy makes, or to what it wrote; 0 if nothing.
define internal i64 @unfenced(i32 %by, i32 %written, i64 %how) {
entry:
  %me = call i64 @me()
  %threads = call i64 @threads()
  %landed_n = and i32 %by, ${LANDED_BIT}
  %landed = icmp ne i32 %landed_n, 0
  br i1 %landed, label %copied, label %stored
copied:
  %number = and i32 %by, ${NUMBER_BITS}
  %index = zext i32 %number to i64
  %column = add i64 %threads, %index
  %row = call ptr @known_row(i64 %me)
  %p = getelementptr i32, ptr %row, i64 %column
  %known = load i32, ptr %p
  %told = icmp ult i32 %written, %known
  %wrong = select i1 %told, i64 0, i64 ${kind.UNWAITED}
  ret i64 %wrong
stored:
  %block_p = call ptr @of_core(i64 ${core.block})
  %block = load i64, ptr %block_p
  %first = mul i64 %block, %threads
  %by64 = zext i32 %by to i64
  %before = sub i64 %by64, 1
  %other = sub i64 %before, %first
  %here = icmp ult i64 %other, %threads
  br i1 %here, label %near, label %fine
near:
  %own = icmp eq i64 %other, %me
  %apart = call i1 @unordered(i64 %other, i32 %written)
  %foreign = xor i1 %own, true
  %race = and i1 %apart, %foreign ; which is told as one
  br i1 %race, label %fine, label %fence
fence:
  %seen = call ptr @seen_row(i64 %me)
  %q = getelementptr i32, ptr %seen, i64 %other
  %since = load i32, ptr %q
  %fenced = icmp ult i32 %written, %since
  br i1 %fenced, label %fine, label %bad
fine:
  ret i64 0
bad:
  ret i64 ${kind.UNFENCED}
}

; Threads first .. last - 1 have met: each knows what one of them knew, and all they did.
define internal void @meet(i64 %first, i64 %last) {
  %known = load ptr, ptr @known
  %seen = load ptr, ptr @seen
  call void @meet_rows(ptr %known, i64 %first, i64 %last, i1 true)
  call void @meet_rows(ptr %seen, i64 %first, i64 %last, i1 false)
  ${met}
  ret void
}

define internal void @meet_rows(ptr %table, i64 %first, i64 %last, i1 %fresh) {
entry:
  %joined = load ptr, ptr @joined
  %one = call ptr @row(ptr %table, i64 %first)
  call void @copy_row(ptr %joined, ptr %one)
  %width = load i64, ptr @width
  %some = icmp ne i64 %width, 0
  br i1 %some, label %gather, label %out
gather:
  %t = phi i64 [ %first, %entry ], [ %t1, %gather ]
  %from = call ptr @row(ptr %table, i64 %t)
  call void @join(ptr %joined, ptr %from)
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %last
  br i1 %more, label %gather, label %now
now:
  %time_p = call ptr @of_core(i64 ${core.time})
  %time = load i32, ptr %time_p
  br i1 %fresh, label %set, label %spread
set:
  %s = phi i64 [ %first, %now ], [ %s1, %set ]
  %p = getelementptr i32, ptr %joined, i64 %s
  store i32 %time, ptr %p
  %s1 = add i64 %s, 1
  %more_s = icmp ult i64 %s1, %last
  br i1 %more_s, label %set, label %spread
spread:
  %u = phi i64 [ %first, %now ], [ %first, %set ], [ %u1, %spread ]
  %to = call ptr @row(ptr %table, i64 %u)
  call void @copy_row(ptr %to, ptr %joined)
  %u1 = add i64 %u, 1
  %more_u = icmp ult i64 %u1, %last
  br i1 %more_u, label %spread, label %out
out:
  ret void
}

; What this thread knows goes to a barrier; what it does from now on does not.
define internal void @release(ptr %bar) {
  %me = call i64 @me()
  %now = call i32 @tick()
  %known = call ptr @known_row(i64 %me)
  %p = getelementptr i32, ptr %known, i64 %me
  store i32 %now, ptr %p
  %there = call ptr @bar_row(ptr %bar, i64 0)
  call void @join(ptr %there, ptr %known)
  %seen = call ptr @seen_row(i64 %me)
  %there2 = call ptr @bar_row(ptr %bar, i64 1)
  call void @join(ptr %there2, ptr %seen)
  ret void
}

define internal void @acquire(i64 %t, ptr %bar) {
  %known = call ptr @known_row(i64 %t)
  %there = call ptr @bar_row(ptr %bar, i64 2)
  call void @join(ptr %known, ptr %there)
  %seen = call ptr @seen_row(i64 %t)
  %there2 = call ptr @bar_row(ptr %bar, i64 3)
  call void @join(ptr %seen, ptr %there2)
  ${synced}
  ret void
}

; All that this thread knows is known to the asynchronous proxy.
define void @nw_phase_fence() {
  call void @nw_phase_fence_init()
  %me = call i64 @me()
  %now = call i32 @tick()
  %known = call ptr @known_row(i64 %me)
  %p = getelementptr i32, ptr %known, i64 %me
  store i32 %now, ptr %p
  %seen = call ptr @seen_row(i64 %me)
  call void @join(ptr %seen, ptr %known)
  ret void
}
