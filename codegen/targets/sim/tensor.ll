; Tensor memory in LLVM IR: what a block has of it, products that keep their sums there, loads.
;
; It stands behind the block's shared memory, lane by lane, with a shadow. A product is made when it
; is begun, as accesses of its thread; until a commit of that thread after it has arrived, its sums
; are among ``@reads``, and nobody may load them. So are registers that are loaded, until the wait.
; Who has met others since its fence after that is ``stale``; who touched tensor memory since its
; fence before the next meeting has it ``open``.

@tensor_columns = internal global i64 0
@tensor_record = internal global ptr null ; where the allocation is told, for faults
@tensor_slot = internal global ptr null
@tensor_stale = internal global ptr null ; by thread
@tensor_open = internal global ptr null ; by thread

define internal void @open_tensor() {
  %threads = call i64 @threads()
  %bytes = shl i64 %threads, 3
  %stale = call ptr @nw_scratch(i64 %bytes)
  %open = call ptr @nw_scratch(i64 %bytes)
  store ptr %stale, ptr @tensor_stale
  store ptr %open, ptr @tensor_open
  ret void
}
define internal void @begin_tensor() {
  %threads = call i64 @threads()
  %bytes = shl i64 %threads, 3
  %stale = load ptr, ptr @tensor_stale
  %open = load ptr, ptr @tensor_open
  call void @llvm.memset.p0.i64(ptr %stale, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %open, i8 0, i64 %bytes, i1 false)
  store i64 0, ptr @tensor_columns
  ret void
}
define internal void @end_tensor() {
entry:
  %columns = load i64, ptr @tensor_columns
  %none = icmp eq i64 %columns, 0
  %report = call ptr @nw_sim_report()
  %kind = call i64 @get(ptr %report, i64 ${report.kind})
  %told = icmp ne i64 %kind, 0
  %quiet = or i1 %none, %told
  br i1 %quiet, label %out, label %tell
tell:
  call void @nw_sim_turn_to(i64 0)
  call void @tell_columns(i64 ${kind.KEPT})
  br label %out
out:
  store i64 0, ptr @tensor_columns
  ret void
}
define internal void @tell_columns(i64 %kind) {
  %record = load ptr, ptr @tensor_record
  %slot = load ptr, ptr @tensor_slot
  call void @nw_sim_tell(i64 %kind, ptr %record, ptr %slot)
  ret void
}

; Fences, and what they are for.

define internal i64 @tensor_flag(ptr %table, i64 %t) alwaysinline {
  %p = getelementptr i64, ptr %table, i64 %t
  %flag = load i64, ptr %p
  ret i64 %flag
}
define internal void @put_flag(ptr %table, i64 %t, i64 %flag) alwaysinline {
  %p = getelementptr i64, ptr %table, i64 %t
  store i64 %flag, ptr %p
  ret void
}
define internal void @tensor_synced(i64 %t) {
  %stale = load ptr, ptr @tensor_stale
  call void @put_flag(ptr %stale, i64 %t, i64 1)
  ret void
}
define internal void @tensor_met(i64 %first, i64 %last) {
entry:
  %count = sub i64 %last, %first
  %several = icmp ugt i64 %count, 32
  br i1 %several, label %next, label %out
next:
  %t = phi i64 [ %first, %entry ], [ %t1, %next ]
  call void @tensor_synced(i64 %t)
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %last
  br i1 %more, label %next, label %out
out:
  ret void
}
define void @nw_tensor_fence_before() {
  %me = call i64 @me()
  %open = load ptr, ptr @tensor_open
  call void @put_flag(ptr %open, i64 %me, i64 0)
  ret void
}
define void @nw_tensor_fence_after() {
  %me = call i64 @me()
  %stale = load ptr, ptr @tensor_stale
  call void @put_flag(ptr %stale, i64 %me, i64 0)
  ret void
}

; True, and told, if this thread cannot use tensor memory: who changes it asks for others' fences,
; and all ask for that of the thread that allocated it.
define internal i1 @tensor_bad(ptr %record, ptr %at, i1 %changes) {
entry:
  %me = call i64 @me()
  %threads = call i64 @threads()
  %columns = load i64, ptr @tensor_columns
  %none = icmp eq i64 %columns, 0
  br i1 %none, label %tell, label %fresh
fresh:
  %stale = load ptr, ptr @tensor_stale
  %old_n = call i64 @tensor_flag(ptr %stale, i64 %me)
  %old = icmp ne i64 %old_n, 0
  br i1 %old, label %tell, label %others
others:
  %least = select i1 %changes, i64 ${open.USED}, i64 ${open.ALLOCATED}
  br label %next
next:
  %t = phi i64 [ 0, %others ], [ %t1, %pass ]
  %open = load ptr, ptr @tensor_open
  %is_open_n = call i64 @tensor_flag(ptr %open, i64 %t)
  %is_open = icmp uge i64 %is_open_n, %least
  %other = icmp ne i64 %t, %me
  %bad = and i1 %is_open, %other
  br i1 %bad, label %unsent, label %pass
pass:
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %next, label %fine
unsent:
  call void @nw_sim_turn_to(i64 %t)
  br label %tell
tell:
  %kind = phi i64 [ ${kind.NO_COLUMNS}, %entry ], [ ${kind.STALE}, %fresh ],
                  [ ${kind.UNSENT}, %unsent ]
  call void @nw_sim_tell(i64 %kind, ptr %record, ptr %at)
  ret i1 true
fine:
  ret i1 false
}

; Columns.

define i1 @nw_tensor_alloc(ptr %record, ptr %at, i64 %columns) {
entry:
  %me = call i64 @me()
  %lane = and i64 %me, 31
  %first = icmp eq i64 %lane, 0
  br i1 %first, label %look, label %fine
look:
  store ptr %record, ptr @tensor_record
  store ptr %at, ptr @tensor_slot
  %have = load i64, ptr @tensor_columns
  %none = icmp eq i64 %have, 0
  %less = sub i64 %columns, 1
  %bits = and i64 %columns, %less
  %power = icmp eq i64 %bits, 0
  %many = icmp uge i64 %columns, 32
  %few = icmp ule i64 %columns, ${COLUMNS}
  %g1 = and i1 %none, %power
  %g2 = and i1 %many, %few
  %good = and i1 %g1, %g2
  br i1 %good, label %take, label %bad
bad:
  call void @tell_columns(i64 ${kind.COLUMNS})
  ret i1 true
take:
  %clash = call i1 @nw_sim_access(ptr %record, ptr %at, i64 4, i64 ${how.WRITES_ALIGNED})
  br i1 %clash, label %fault, label %put
put:
  store i32 0, ptr %at
  store i64 %columns, ptr @tensor_columns
  %open = load ptr, ptr @tensor_open
  call void @put_flag(ptr %open, i64 %me, i64 ${open.ALLOCATED})
  br label %fine
fine:
  ret i1 false
fault:
  ret i1 true
}

define i1 @nw_tensor_free(i64 %columns) {
entry:
  %me = call i64 @me()
  %lane = and i64 %me, 31
  %first = icmp eq i64 %lane, 0
  br i1 %first, label %look, label %fine
look:
  %record = load ptr, ptr @tensor_record
  %slot = load ptr, ptr @tensor_slot
  %have = load i64, ptr @tensor_columns
  %same = icmp eq i64 %have, %columns
  br i1 %same, label %order, label %bad
bad:
  call void @tell_columns(i64 ${kind.COLUMNS})
  ret i1 true
order:
  %wrong = call i1 @tensor_bad(ptr %record, ptr %slot, i1 true)
  br i1 %wrong, label %fault, label %free
free:
  store i64 0, ptr @tensor_columns
  br label %fine
fine:
  ret i1 false
fault:
  ret i1 true
}

; Sums that are under way.

; The one of ``@reads`` that is sums of products under way which overlap; null if there is none.
define internal ptr @sums_under_way(ptr %at, i64 %bytes) {
entry:
  %from = ptrtoint ptr %at to i64
  %end = add i64 %from, %bytes
  %reads = load ptr, ptr @reads
  %count = load i64, ptr @read_count
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %place = mul i64 %i, ${sizeof.async_read}
  %read = getelementptr i8, ptr %reads, i64 %place
  %kind = call i64 @get(ptr %read, i64 ${async_read.kind})
  %is_sums = icmp eq i64 %kind, ${read.TENSOR}
  %start = call i64 @get(ptr %read, i64 ${async_read.at})
  %size = call i64 @get(ptr %read, i64 ${async_read.size})
  %to = add i64 %start, %size
  %before = icmp ult i64 %from, %to
  %behind = icmp ult i64 %start, %end
  %meets = and i1 %before, %behind
  %found = and i1 %meets, %is_sums
  br i1 %found, label %yes, label %next
next:
  %i1 = add i64 %i, 1
  br label %test
yes:
  ret ptr %read
none:
  ret ptr null
}

; One line of sums for each lane, between a matrix and tensor memory.
define internal i1 @tensor_lines(ptr %record, ptr %at, i64 %pitch, i64 %bytes, i1 %adds,
                                 i1 %gather) {
entry:
  %c = load ptr, ptr @part_c
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r1, %done ]
  %line_at = mul i64 %r, %pitch
  %line = getelementptr i8, ptr %at, i64 %line_at
  %own_at = mul i64 %r, %bytes
  %own = getelementptr i8, ptr %c, i64 %own_at
  br i1 %gather, label %in, label %out
in:
  br i1 %adds, label %read, label %clear
read:
  %bad_r = call i1 @nw_sim_access(ptr %record, ptr %line, i64 %bytes, i64 0)
  br i1 %bad_r, label %fault, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %line, i64 %bytes, i1 false)
  br label %done
clear:
  call void @llvm.memset.p0.i64(ptr %own, i8 0, i64 %bytes, i1 false)
  br label %done
out:
  %bad_w = call i1 @nw_sim_access(ptr %record, ptr %line, i64 %bytes, i64 ${how.WRITES})
  br i1 %bad_w, label %fault, label %put
put:
  call void @llvm.memcpy.p0.p0.i64(ptr %line, ptr %own, i64 %bytes, i1 false)
  br label %done
done:
  %r1 = add i64 %r, 1
  %more = icmp ult i64 %r1, ${LANES}
  br i1 %more, label %row, label %fine
fine:
  ret i1 false
fault:
  ret i1 true
}

define i1 @nw_tensor_multiply(ptr %record, ptr %at, i64 %pitch, i64 %flag, ptr %a_record, ptr %a,
                              ptr %b_record, ptr %b, ptr %product) {
entry:
  %bad = call i1 @tensor_bad(ptr %record, ptr %at, i1 true)
  br i1 %bad, label %fault, label %operands
operands:
  %me = call i64 @me()
  %groups = load ptr, ptr @open_groups
  %threads = call i64 @threads()
  %number = add i64 %threads, %me
  %group = call i64 @tensor_flag(ptr %groups, i64 %number)
  %columns = call i64 @get(ptr %product, i64 ${product.columns})
  %depth = call i64 @get(ptr %product, i64 ${product.depth})
  %bytes = shl i64 %columns, 2
  %adds = icmp ne i64 %flag, 0
  %to_a = load ptr, ptr @part_a
  %to_b = load ptr, ptr @part_b
  %layout_a = getelementptr i8, ptr %product, i64 ${product.a}
  %layout_b = getelementptr i8, ptr %product, i64 ${product.b}
  %bad_a = call i1 @operand(ptr %to_a, i64 %depth, i64 1, i64 ${LANES}, ptr %product, ptr %layout_a,
      ptr %a_record, ptr %a, i64 %me, i64 %group)
  br i1 %bad_a, label %fault, label %right
right:
  %bad_b = call i1 @operand(ptr %to_b, i64 1, i64 %columns, i64 %columns, ptr %product,
      ptr %layout_b, ptr %b_record, ptr %b, i64 %me, i64 %group)
  br i1 %bad_b, label %fault, label %gather
gather:
  %bad_c = call i1 @tensor_lines(ptr %record, ptr %at, i64 %pitch, i64 %bytes, i1 %adds, i1 true)
  br i1 %bad_c, label %fault, label %make
make:
  %whole_n = call i64 @get(ptr %product, i64 ${product.whole})
  %whole = icmp ne i64 %whole_n, 0
  call void @multiply(i64 ${LANES}, i64 %columns, i64 %depth, i1 %whole)
  %bad_d = call i1 @tensor_lines(ptr %record, ptr %at, i64 %pitch, i64 %bytes, i1 %adds, i1 false)
  br i1 %bad_d, label %fault, label %note
note:
  %old = call ptr @sums_under_way(ptr %at, i64 %bytes)
  %known = icmp ne ptr %old, null
  br i1 %known, label %later, label %new
later:
  call void @set(ptr %old, i64 ${async_read.group}, i64 %group)
  ret i1 false
new:
  %read = call ptr @new_read(i64 %me, i64 ${read.TENSOR}, i64 %group, ptr %record, ptr %at,
                             i64 %bytes)
  ret i1 false
fault:
  ret i1 true
}

; Commits: an arrival that lands after those before it.

define i1 @nw_tensor_commit(ptr %record, ptr %at) {
entry:
  %index = call i64 @mbarrier(ptr %record, ptr %at)
  %bad = icmp slt i64 %index, 0
  br i1 %bad, label %fault, label %made
made:
  %fresh = call i1 @is_fresh(i64 %index)
  br i1 %fresh, label %fault, label %note
note:
  %me = call i64 @me()
  %groups = load ptr, ptr @open_groups
  %threads = call i64 @threads()
  %number = add i64 %threads, %me
  %group = call i64 @tensor_flag(ptr %groups, i64 %number)
  %next = add i64 %group, 1
  call void @put_flag(ptr %groups, i64 %number, i64 %next)
  %flight = call ptr @new_flight()
  call void @set(ptr %flight, i64 ${flight.land}, i64 ptrtoint (ptr @land_tensor to i64))
  call void @set(ptr %flight, i64 ${flight.bar}, i64 %index)
  call void @set(ptr %flight, i64 ${flight.group}, i64 %group)
  ret i1 false
fault:
  ret i1 true
}

define internal void @land_tensor(ptr %flight) {
entry:
  %other = alloca [${sizeof.flight} x i8], align 16
  %thread = call i64 @get(ptr %flight, i64 ${flight.thread})
  %flights = load ptr, ptr @flights
  %count = load i64, ptr @flight_count
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %pass ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %land
look:
  %place = mul i64 %i, ${sizeof.flight}
  %there = getelementptr i8, ptr %flights, i64 %place
  %kind = call ptr @get_ptr(ptr %there, i64 ${flight.land})
  %whose = call i64 @get(ptr %there, i64 ${flight.thread})
  %its = call i64 @get(ptr %there, i64 ${flight.group})
  %mine = call i64 @get(ptr %flight, i64 ${flight.group})
  %commit = icmp eq ptr %kind, @land_tensor
  %same = icmp eq i64 %whose, %thread
  %before = icmp slt i64 %its, %mine
  %both = and i1 %commit, %same
  %earlier = and i1 %both, %before
  br i1 %earlier, label %swap, label %pass
swap:
  call void @llvm.memcpy.p0.p0.i64(ptr %other, ptr %there, i64 ${sizeof.flight}, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %there, ptr %flight, i64 ${sizeof.flight}, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %flight, ptr %other, i64 ${sizeof.flight}, i1 false)
  br label %pass
pass:
  %i1 = add i64 %i, 1
  br label %test
land:
  %index = call i64 @get(ptr %flight, i64 ${flight.bar})
  %group = call i64 @get(ptr %flight, i64 ${flight.group})
  %over = add i64 %group, 1
  call void @nw_sim_turn_to(i64 %thread)
  call void @end_group(i64 %thread, i1 false, i64 %over)
  %wrong = call i1 @arrive(i64 %index, i64 0)
  ret void
}

; Loads of this thread's lane; ``at`` is the column in the first one.

define i1 @nw_tensor_load(ptr %record, ptr %at, i64 %pitch, ptr %to, i64 %words) {
entry:
  %bad = call i1 @tensor_bad(ptr %record, ptr %at, i1 false)
  br i1 %bad, label %fault, label %look
look:
  %me = call i64 @me()
  %lane = and i64 %me, ${LAST_LANE}
  %line_at = mul i64 %lane, %pitch
  %line = getelementptr i8, ptr %at, i64 %line_at
  %bytes = shl i64 %words, 2
  %sums = call ptr @sums_under_way(ptr %at, i64 %bytes)
  %early = icmp ne ptr %sums, null
  br i1 %early, label %tell, label %read
tell:
  call void @nw_sim_tell(i64 ${kind.SUMS_EARLY}, ptr %record, ptr %line)
  ret i1 true
read:
  %race = call i1 @nw_sim_access(ptr %record, ptr %line, i64 %bytes, i64 0)
  br i1 %race, label %fault, label %take
take:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %line, i64 %bytes, i1 false)
  %note = call ptr @new_read(i64 %me, i64 ${read.LOADED}, i64 9223372036854775807, ptr %record,
                             ptr %to, i64 %bytes)
  %open = load ptr, ptr @tensor_open
  call void @put_flag(ptr %open, i64 %me, i64 ${open.USED})
  ret i1 false
fault:
  ret i1 true
}

define void @nw_tensor_wait() {
entry:
  %me = call i64 @me()
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %keep ], [ %i, %drop ]
  %count = load i64, ptr @read_count
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %reads = load ptr, ptr @reads
  %place = mul i64 %i, ${sizeof.async_read}
  %read = getelementptr i8, ptr %reads, i64 %place
  %whose = call i64 @get(ptr %read, i64 ${async_read.thread})
  %kind = call i64 @get(ptr %read, i64 ${async_read.kind})
  %mine = icmp eq i64 %whose, %me
  %loaded = icmp eq i64 %kind, ${read.LOADED}
  %ends = and i1 %mine, %loaded
  br i1 %ends, label %drop, label %keep
keep:
  %i1 = add i64 %i, 1
  br label %test
drop:
  %less = sub i64 %count, 1
  %last_place = mul i64 %less, ${sizeof.async_read}
  %last = getelementptr i8, ptr %reads, i64 %last_place
  call void @llvm.memmove.p0.p0.i64(ptr %read, ptr %last, i64 ${sizeof.async_read}, i1 false)
  store i64 %less, ptr @read_count
  br label %test
out:
  ret void
}
