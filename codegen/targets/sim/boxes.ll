; Bulk copies of boxes of matrices in LLVM IR, and shared memory that is read asynchronously.
;
; A box that is loaded lands when no thread can go on. One that is stored is read at once, but until
; its thread waits for it, its cells have a reader in the future, so that who writes them races.

@reads = internal global ptr null ; what is read asynchronously, in no order
@read_count = internal global i64 0
@read_room = internal global i64 0
; Of bulk stores by thread; of products by their first thread.
@open_groups = internal global ptr null

define internal void @open_reads() {
  %threads = call i64 @threads()
  %bytes = shl i64 %threads, 4
  %groups = call ptr @nw_scratch(i64 %bytes)
  store ptr %groups, ptr @open_groups
  ret void
}
define internal void @begin_reads() {
  %threads = call i64 @threads()
  %bytes = shl i64 %threads, 4
  %groups = load ptr, ptr @open_groups
  call void @llvm.memset.p0.i64(ptr %groups, i8 0, i64 %bytes, i1 false)
  store i64 0, ptr @read_count
  ret void
}
define internal void @end_reads() {
entry:
  %left = load i64, ptr @read_count
  %none = icmp eq i64 %left, 0
  %report = call ptr @nw_sim_report()
  %kind = call i64 @get(ptr %report, i64 ${report.kind})
  %told = icmp ne i64 %kind, 0
  %quiet = or i1 %none, %told
  br i1 %quiet, label %out, label %tell
tell:
  %reads = load ptr, ptr @reads
  %thread = call i64 @get(ptr %reads, i64 ${async_read.thread})
  call void @nw_sim_turn_to(i64 %thread)
  %record = call ptr @get_ptr(ptr %reads, i64 ${async_read.record})
  %at = call ptr @get_ptr(ptr %reads, i64 ${async_read.at})
  call void @nw_sim_tell(i64 ${kind.LEFT_READ}, ptr %record, ptr %at)
  br label %out
out:
  %all = load ptr, ptr @reads
  call void @free(ptr %all)
  store ptr null, ptr @reads
  store i64 0, ptr @read_room
  store i64 0, ptr @read_count
  ret void
}

define internal ptr @new_read(i64 %thread, i64 %kind, i64 %group, ptr %record, ptr %at, i64 %size) {
entry:
  %count = load i64, ptr @read_count
  %room = load i64, ptr @read_room
  %full = icmp eq i64 %count, %room
  br i1 %full, label %grow, label %take
grow:
  %old = load ptr, ptr @reads
  %double = shl i64 %room, 1
  %wanted = or i64 %double, 256
  %bytes = mul i64 %wanted, ${sizeof.async_read}
  %new = call ptr @realloc(ptr %old, i64 %bytes)
  store ptr %new, ptr @reads
  store i64 %wanted, ptr @read_room
  br label %take
take:
  %more = add i64 %count, 1
  store i64 %more, ptr @read_count
  %reads = load ptr, ptr @reads
  %place = mul i64 %count, ${sizeof.async_read}
  %read = getelementptr i8, ptr %reads, i64 %place
  %record_n = ptrtoint ptr %record to i64
  %at_n = ptrtoint ptr %at to i64
  call void @set(ptr %read, i64 ${async_read.thread}, i64 %thread)
  call void @set(ptr %read, i64 ${async_read.kind}, i64 %kind)
  call void @set(ptr %read, i64 ${async_read.group}, i64 %group)
  call void @set(ptr %read, i64 ${async_read.record}, i64 %record_n)
  call void @set(ptr %read, i64 ${async_read.at}, i64 %at_n)
  call void @set(ptr %read, i64 ${async_read.size}, i64 %size)
  ret ptr %read
}

; The asynchronous proxy reads shared memory from now on, for this thread but not as this thread.
define internal i1 @read_later(ptr %record, ptr %at, i64 %size) {
  %time_p = call ptr @of_core(i64 ${core.time})
  %now = load i32, ptr %time_p
  store i32 ${FUTURE}, ptr %time_p
  %self_p = call ptr @of_core(i64 ${core.self})
  %self = load i32, ptr %self_p
  %proxy = or i32 %self, ${LANDED_BIT}
  store i32 %proxy, ptr %self_p
  %bad = call i1 @nw_sim_access(ptr %record, ptr %at, i64 %size, i64 ${how.PROXY})
  store i32 %now, ptr %time_p
  store i32 %self, ptr %self_p
  ret i1 %bad
}

; What this thread's asynchronous read of cells was, was now.
define internal void @settle(ptr %record, ptr %at, i64 %size) {
entry:
  %cells = call ptr @get_ptr(ptr %record, i64 ${sim_record.cells})
  %none = icmp eq ptr %cells, null
  br i1 %none, label %out, label %walk
walk:
  %base = call i64 @get(ptr %record, i64 ${sim_record.base})
  %shift = call i64 @get(ptr %record, i64 ${sim_record.shift})
  %at_n = ptrtoint ptr %at to i64
  %offset = sub i64 %at_n, %base
  %end = add i64 %offset, %size
  %first = lshr i64 %offset, %shift
  %last = lshr i64 %end, %shift
  %self_p = call ptr @of_core(i64 ${core.self})
  %me = load i32, ptr %self_p
  %proxy = or i32 %me, ${LANDED_BIT}
  %time_p = call ptr @of_core(i64 ${core.time})
  %now = load i32, ptr %time_p
  br label %next
next:
  %i = phi i64 [ %first, %walk ], [ %i1, %next ]
  %skip = mul i64 %i, ${sizeof.cell}
  %cell = getelementptr i8, ptr %cells, i64 %skip
  %read_p = getelementptr i8, ptr %cell, i64 ${cell.read}
  %one_p = getelementptr i8, ptr %cell, i64 ${cell.one}
  %two_p = getelementptr i8, ptr %cell, i64 ${cell.two}
  %earlier_p = getelementptr i8, ptr %cell, i64 ${cell.earlier}
  %read = load i32, ptr %read_p
  %one = load i32, ptr %one_p
  %two = load i32, ptr %two_p
  %earlier = load i32, ptr %earlier_p
  %one_ours = icmp eq i32 %one, %proxy
  %two_ours = icmp eq i32 %two, %proxy
  %read1 = select i1 %two_ours, i32 %now, i32 %read
  %earlier1 = select i1 %one_ours, i32 %now, i32 %earlier
  %one1 = select i1 %one_ours, i32 %me, i32 %one
  %two1 = select i1 %two_ours, i32 %me, i32 %two
  store i32 %read1, ptr %read_p
  store i32 %earlier1, ptr %earlier_p
  store i32 %one1, ptr %one_p
  store i32 %two1, ptr %two_p
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %last
  br i1 %more, label %next, label %out
out:
  ret void
}

; Bytes of a box, and where element i of it lies in shared memory.

define internal i64 @box_bytes(ptr %box) {
  %wide = call i64 @get(ptr %box, i64 ${box.wide})
  %high = call i64 @get(ptr %box, i64 ${box.high})
  %size = call i64 @get(ptr %box, i64 ${box.bytes})
  %count = mul i64 %wide, %high
  %bytes = mul i64 %count, %size
  ret i64 %bytes
}

; A box must begin at a multiple of its pattern.
define internal i1 @askew(ptr %box, ptr %record, ptr %at) {
entry:
  %swizzle = call i64 @get(ptr %box, i64 ${box.swizzle})
  %pattern = shl i64 %swizzle, 3
  %least = call i64 @llvm.umax.i64(i64 %pattern, i64 128)
  %below = sub i64 %least, 1
  %static = call ptr @get_ptr(ptr %record, i64 ${sim_record.static})
  %place = call i64 @get(ptr %static, i64 ${buffer.offset})
  %base = call i64 @get(ptr %record, i64 ${sim_record.base})
  %at_n = ptrtoint ptr %at to i64
  %offset = sub i64 %at_n, %base
  %whole = add i64 %place, %offset
  %rest = and i64 %whole, %below
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tell, label %out
tell:
  call void @nw_sim_tell(i64 ${kind.MISALIGNED}, ptr %record, ptr %at)
  br label %out
out:
  ret i1 %odd
}

; Copy a box, one way or the other; what lies outside of the matrix is zero, or stays as it is.
define internal i1 @copy_box(ptr %box, ptr %at, ptr %record, ptr %matrix, i64 %column, i64 %row,
                             i1 %loads) {
entry:
  %columns = call i64 @get(ptr %box, i64 ${box.columns})
  %rows = call i64 @get(ptr %box, i64 ${box.rows})
  %pitch = call i64 @get(ptr %box, i64 ${box.pitch})
  %wide = call i64 @get(ptr %box, i64 ${box.wide})
  %swizzle = call i64 @get(ptr %box, i64 ${box.swizzle})
  %size = call i64 @get(ptr %box, i64 ${box.bytes})
  %all = call i64 @box_bytes(ptr %box)
  %chunks = lshr i64 %swizzle, 4
  %any = icmp ne i64 %chunks, 0
  %top = sub i64 %chunks, 1
  %mask = select i1 %any, i64 %top, i64 0
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %done ]
  %plain = phi i64 [ 0, %entry ], [ %plain1, %done ]
  %line = lshr i64 %plain, 7
  %turn = and i64 %line, %mask
  %bits = shl i64 %turn, 4
  %offset = xor i64 %plain, %bits
  %here = getelementptr i8, ptr %at, i64 %offset
  %r = udiv i64 %n, %wide
  %c = urem i64 %n, %wide
  %i = add i64 %row, %r
  %j = add i64 %column, %c
  %low = icmp ult i64 %i, %rows
  %left = icmp ult i64 %j, %columns
  %inside = and i1 %low, %left
  br i1 %inside, label %move, label %outside
outside:
  br i1 %loads, label %zero, label %done
zero:
  call void @llvm.memset.p0.i64(ptr %here, i8 0, i64 %size, i1 false)
  br label %done
move:
  %line_at = mul i64 %i, %pitch
  %element = add i64 %line_at, %j
  %byte = mul i64 %element, %size
  %there = getelementptr i8, ptr %matrix, i64 %byte
  br i1 %loads, label %load, label %store
load:
  call void @llvm.memcpy.p0.p0.i64(ptr %here, ptr %there, i64 %size, i1 false)
  br label %done
store:
  %bad = call i1 @nw_sim_access(ptr %record, ptr %there, i64 %size, i64 ${how.WRITES})
  br i1 %bad, label %fault, label %write
write:
  call void @llvm.memcpy.p0.p0.i64(ptr %there, ptr %here, i64 %size, i1 false)
  br label %done
done:
  %n1 = add i64 %n, 1
  %plain1 = add i64 %plain, %size
  %more = icmp ult i64 %plain1, %all
  br i1 %more, label %next, label %out
out:
  ret i1 false
fault:
  ret i1 true
}

define i1 @nw_box_load(ptr %box, ptr %to, ptr %target, ptr %from, ptr %matrix, ptr %bars,
                       ptr %bar_at,
                       i64 %column, i64 %row) {
entry:
  %index = call i64 @mbarrier(ptr %bars, ptr %bar_at)
  %none = icmp slt i64 %index, 0
  br i1 %none, label %fault, label %made
made:
  %fresh = call i1 @is_fresh(i64 %index)
  br i1 %fresh, label %fault, label %straight
straight:
  %odd = call i1 @askew(ptr %box, ptr %to, ptr %target)
  br i1 %odd, label %fault, label %bounds
bounds: ; the whole matrix must be there
  %rows = call i64 @get(ptr %box, i64 ${box.rows})
  %pitch = call i64 @get(ptr %box, i64 ${box.pitch})
  %columns = call i64 @get(ptr %box, i64 ${box.columns})
  %size = call i64 @get(ptr %box, i64 ${box.bytes})
  %before = sub i64 %rows, 1
  %lines = mul i64 %before, %pitch
  %elements = add i64 %lines, %columns
  %bytes = mul i64 %elements, %size
  %outside = call i1 @nw_sim_access(ptr %from, ptr %matrix, i64 %bytes, i64 0)
  br i1 %outside, label %fault, label %check
check:
  %all = call i64 @box_bytes(ptr %box)
  %clash = call i1 @nw_sim_access(ptr %to, ptr %target, i64 %all, i64 ${how.WRITES_PROXY})
  br i1 %clash, label %fault, label %put
put:
  call void @nw_sim_mark(ptr %to, ptr %target, i64 %all, i32 ${PENDING_BIT})
  %bar = call ptr @bar(i64 %index)
  %flying = call i64 @get(ptr %bar, i64 ${bar.flying})
  %flying1 = add i64 %flying, 1
  call void @set(ptr %bar, i64 ${bar.flying}, i64 %flying1)
  %flight = call ptr @new_flight()
  %to_n = ptrtoint ptr %to to i64
  %target_n = ptrtoint ptr %target to i64
  %matrix_n = ptrtoint ptr %matrix to i64
  %box_n = ptrtoint ptr %box to i64
  call void @set(ptr %flight, i64 ${flight.land}, i64 ptrtoint (ptr @land_box to i64))
  call void @set(ptr %flight, i64 ${flight.bar}, i64 %index)
  call void @set(ptr %flight, i64 ${flight.to}, i64 %to_n)
  call void @set(ptr %flight, i64 ${flight.target}, i64 %target_n)
  call void @set(ptr %flight, i64 ${flight.source}, i64 %matrix_n)
  call void @set(ptr %flight, i64 ${flight.box}, i64 %box_n)
  call void @set(ptr %flight, i64 ${flight.column}, i64 %column)
  call void @set(ptr %flight, i64 ${flight.row}, i64 %row)
  ret i1 false
fault:
  ret i1 true
}

define internal void @land_box(ptr %flight) {
  %thread = call i64 @get(ptr %flight, i64 ${flight.thread})
  call void @nw_sim_turn_to(i64 %thread)
  %index = call i64 @get(ptr %flight, i64 ${flight.bar})
  %to = call ptr @get_ptr(ptr %flight, i64 ${flight.to})
  %target = call ptr @get_ptr(ptr %flight, i64 ${flight.target})
  %matrix = call ptr @get_ptr(ptr %flight, i64 ${flight.source})
  %box = call ptr @get_ptr(ptr %flight, i64 ${flight.box})
  %column = call i64 @get(ptr %flight, i64 ${flight.column})
  %row = call i64 @get(ptr %flight, i64 ${flight.row})
  %none = call i1 @copy_box(ptr %box, ptr %target, ptr null, ptr %matrix, i64 %column, i64 %row,
                            i1 true)
  %all = call i64 @box_bytes(ptr %box)
  %self_p = call ptr @of_core(i64 ${core.self})
  %self = load i32, ptr %self_p
  %index32 = trunc i64 %index to i32
  store i32 %index32, ptr %self_p
  call void @nw_sim_mark(ptr %to, ptr %target, i64 %all, i32 ${LANDED_BIT})
  store i32 %self, ptr %self_p
  %bar = call ptr @bar(i64 %index)
  %flying = call i64 @get(ptr %bar, i64 ${bar.flying})
  %flying1 = sub i64 %flying, 1
  call void @set(ptr %bar, i64 ${bar.flying}, i64 %flying1)
  %bytes = call i64 @get(ptr %bar, i64 ${bar.bytes})
  %bytes1 = sub i64 %bytes, %all
  call void @set(ptr %bar, i64 ${bar.bytes}, i64 %bytes1)
  %wrong = call i1 @complete_if(i64 %index)
  ret void
}

define i1 @nw_box_store(ptr %box, ptr %from, ptr %source, ptr %to, ptr %matrix, i64 %column,
                        i64 %row) {
entry:
  %odd = call i1 @askew(ptr %box, ptr %from, ptr %source)
  br i1 %odd, label %fault, label %check
check:
  %all = call i64 @box_bytes(ptr %box)
  %clash = call i1 @read_later(ptr %from, ptr %source, i64 %all)
  br i1 %clash, label %fault, label %put
put:
  %me = call i64 @me()
  %groups = load ptr, ptr @open_groups
  %group_p = getelementptr i64, ptr %groups, i64 %me
  %group = load i64, ptr %group_p
  %read = call ptr @new_read(i64 %me, i64 ${read.BOX}, i64 %group, ptr %from, ptr %source, i64 %all)
  %bad = call i1 @copy_box(ptr %box, ptr %source, ptr %to, ptr %matrix, i64 %column, i64 %row,
                           i1 false)
  ret i1 %bad
fault:
  ret i1 true
}

define void @nw_box_commit() {
  %me = call i64 @me()
  %groups = load ptr, ptr @open_groups
  %group_p = getelementptr i64, ptr %groups, i64 %me
  %group = load i64, ptr %group_p
  %next = add i64 %group, 1
  store i64 %next, ptr %group_p
  ret void
}

define void @nw_box_wait(i64 %left) {
  %me = call i64 @me()
  %groups = load ptr, ptr @open_groups
  %group_p = getelementptr i64, ptr %groups, i64 %me
  %group = load i64, ptr %group_p
  %over = sub i64 %group, %left
  call void @end_group(i64 %me, i1 true, i64 %over)
  ret void
}

; What a thread reads asynchronously, by bulk stores or by products, in groups before a number,
; ends.
define internal void @end_group(i64 %thread, i1 %boxes, i64 %over) {
entry:
  %now = call i32 @tick()
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
  %group = call i64 @get(ptr %read, i64 ${async_read.group})
  %mine = icmp eq i64 %whose, %thread
  %is_box = icmp eq i64 %kind, ${read.BOX}
  %right = icmp eq i1 %is_box, %boxes
  %done = icmp slt i64 %group, %over
  %both = and i1 %mine, %right
  %ends = and i1 %both, %done
  br i1 %ends, label %end, label %keep
keep:
  %i1 = add i64 %i, 1
  br label %test
end:
  %record = call ptr @get_ptr(ptr %read, i64 ${async_read.record})
  %at = call ptr @get_ptr(ptr %read, i64 ${async_read.at})
  %size = call i64 @get(ptr %read, i64 ${async_read.size})
  %in_registers = icmp uge i64 %kind, ${read.SUMS}
  br i1 %in_registers, label %drop, label %cells
cells:
  call void @settle(ptr %record, ptr %at, i64 %size)
  br label %drop
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
