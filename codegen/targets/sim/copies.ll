; Asynchronous copies in LLVM IR: a copy lands when its thread waits for the group that it is in.
;
; Each thread has a queue, a ring of entries that grows. ``nw_sim_copy_async`` checks both sides,
; marks what will be written as pending, and copies nothing.

@queues = internal global ptr null

define internal void @open_queues() {
  %threads = load i64, ptr @threads
  %bytes = mul i64 %threads, ${sizeof.queue}
  %queues = call ptr @nw_scratch(i64 %bytes)
  call void @llvm.memset.p0.i64(ptr %queues, i8 0, i64 %bytes, i1 false)
  store ptr %queues, ptr @queues
  ret void
}

; Copies that no thread waited for are nobody's any more: the next block begins without.
define internal void @reset_queues() {
entry:
  %threads = load i64, ptr @threads
  %queues = load ptr, ptr @queues
  %any = load i64, ptr @copies
  %used = icmp ne i64 %any, 0
  br i1 %used, label %next, label %out
next:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %at = mul i64 %t, ${sizeof.queue}
  %queue = getelementptr i8, ptr %queues, i64 %at
  call void @set_field(ptr %queue, i64 ${queue.first}, i64 0)
  call void @set_field(ptr %queue, i64 ${queue.count}, i64 0)
  call void @set_field(ptr %queue, i64 ${queue.group}, i64 0)
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %next, label %out
out:
  store i64 0, ptr @copies
  ret void
}
@copies = internal global i64 0

define internal void @close_queues() {
entry:
  %threads = load i64, ptr @threads
  %queues = load ptr, ptr @queues
  br label %next
next:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %at = mul i64 %t, ${sizeof.queue}
  %queue = getelementptr i8, ptr %queues, i64 %at
  %entries_p = getelementptr i8, ptr %queue, i64 ${queue.entries}
  %entries = load ptr, ptr %entries_p
  call void @free(ptr %entries)
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %next, label %out
out:
  ret void
}

define internal ptr @own_queue() alwaysinline {
  %queues = load ptr, ptr @queues
  %thread = load i64, ptr @thread
  %at = mul i64 %thread, ${sizeof.queue}
  %queue = getelementptr i8, ptr %queues, i64 %at
  ret ptr %queue
}

define internal ptr @entry(ptr %queue, i64 %number) {
  %entries_p = getelementptr i8, ptr %queue, i64 ${queue.entries}
  %entries = load ptr, ptr %entries_p
  %capacity = call i64 @field(ptr %queue, i64 ${queue.capacity})
  %mask = sub i64 %capacity, 1
  %slot = and i64 %number, %mask
  %at = mul i64 %slot, ${sizeof.copy}
  %entry = getelementptr i8, ptr %entries, i64 %at
  ret ptr %entry
}

; Twice the room. Only a full ring grows: what wrapped around is put behind its old end.
define internal void @grow(ptr %queue) {
entry:
  %entries_p = getelementptr i8, ptr %queue, i64 ${queue.entries}
  %old = load ptr, ptr %entries_p
  %capacity = call i64 @field(ptr %queue, i64 ${queue.capacity})
  %none = icmp eq i64 %capacity, 0
  %double = shl i64 %capacity, 1
  %wanted = select i1 %none, i64 16, i64 %double
  %bytes = mul i64 %wanted, ${sizeof.copy}
  %new = call ptr @realloc(ptr %old, i64 %bytes)
  %half = mul i64 %capacity, ${sizeof.copy}
  %behind = getelementptr i8, ptr %new, i64 %half
  call void @llvm.memcpy.p0.p0.i64(ptr %behind, ptr %new, i64 %half, i1 false)
  store ptr %new, ptr %entries_p
  call void @set_field(ptr %queue, i64 ${queue.capacity}, i64 %wanted)
  ret void
}

define i1 @nw_sim_copy_async(ptr %to, ptr %target, ptr %from, ptr %source, i64 %size, i64 %real) {
entry:
  %outside = call i1 @nw_sim_row(ptr %from, ptr %source, i64 %real, i64 ${how.ALIGNED})
  br i1 %outside, label %bad, label %aligned
aligned:
  %base = call i64 @field(ptr %from, i64 ${sim_record.base})
  %source_n = ptrtoint ptr %source to i64
  %offset = sub i64 %source_n, %base
  %below = sub i64 %size, 1
  %rest = and i64 %offset, %below
  %straight = icmp eq i64 %rest, 0
  %unused = icmp eq i64 %real, 0
  %fine = or i1 %straight, %unused
  br i1 %fine, label %check, label %askew
askew:
  call void @tell(i64 ${kind.MISALIGNED}, ptr %from, i64 %offset, i64 0, i32 1, i1 false)
  ret i1 true
check:
  %clash = call i1 @nw_sim_access(ptr %to, ptr %target, i64 %size, i64 ${how.WRITES_ALIGNED})
  br i1 %clash, label %bad, label %put
bad:
  ret i1 true
put:
  call void @nw_sim_mark(ptr %to, ptr %target, i64 %size, i32 ${PENDING_BIT})
  store i64 1, ptr @copies
  %queue = call ptr @own_queue()
  %capacity = call i64 @field(ptr %queue, i64 ${queue.capacity})
  %count = call i64 @field(ptr %queue, i64 ${queue.count})
  %full = icmp eq i64 %count, %capacity
  br i1 %full, label %more, label %append
more:
  call void @grow(ptr %queue)
  br label %append
append:
  %first = call i64 @field(ptr %queue, i64 ${queue.first})
  %number = add i64 %first, %count
  %entry_p = call ptr @entry(ptr %queue, i64 %number)
  %group = call i64 @field(ptr %queue, i64 ${queue.group})
  %target_n = ptrtoint ptr %target to i64
  %to_n = ptrtoint ptr %to to i64
  call void @set_field(ptr %entry_p, i64 ${copy.target}, i64 %target_n)
  call void @set_field(ptr %entry_p, i64 ${copy.source}, i64 %source_n)
  call void @set_field(ptr %entry_p, i64 ${copy.bytes}, i64 %size)
  call void @set_field(ptr %entry_p, i64 ${copy.real}, i64 %real)
  call void @set_field(ptr %entry_p, i64 ${copy.group}, i64 %group)
  call void @set_field(ptr %entry_p, i64 ${copy.record}, i64 %to_n)
  %count1 = add i64 %count, 1
  call void @set_field(ptr %queue, i64 ${queue.count}, i64 %count1)
  ret i1 false
}

; Set who wrote the cells of an access, now; ``flag`` says that it is only on its way. Nobody has
; read what is there.
define void @nw_sim_mark(ptr %record, ptr %at, i64 %size, i32 %flag) {
entry:
  %cells_n = call i64 @field(ptr %record, i64 ${sim_record.cells})
  %none = icmp eq i64 %cells_n, 0
  br i1 %none, label %out, label %walk
walk:
  %cells = inttoptr i64 %cells_n to ptr
  %base = call i64 @field(ptr %record, i64 ${sim_record.base})
  %shift = call i64 @field(ptr %record, i64 ${sim_record.shift})
  %at_n = ptrtoint ptr %at to i64
  %offset = sub i64 %at_n, %base
  %end = add i64 %offset, %size
  %first = lshr i64 %offset, %shift
  %last = lshr i64 %end, %shift
  %me = load i32, ptr @self
  %by = or i32 %me, %flag
  %part = call i32 @mark_of(ptr %record)
  %now = load i32, ptr @time
  br label %next
next:
  %i = phi i64 [ %first, %walk ], [ %i1, %next ]
  %skip = mul i64 %i, ${sizeof.cell}
  %cell = getelementptr i8, ptr %cells, i64 %skip
  %by_p = getelementptr i8, ptr %cell, i64 ${cell.by}
  %part_p = getelementptr i8, ptr %cell, i64 ${cell.part}
  %written_p = getelementptr i8, ptr %cell, i64 ${cell.written}
  %read_p = getelementptr i8, ptr %cell, i64 ${cell.read}
  store i32 %now, ptr %written_p
  store i32 %by, ptr %by_p
  store i32 %part, ptr %part_p
  store i32 0, ptr %read_p
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %last
  br i1 %more, label %next, label %out
out:
  ret void
}

define void @nw_sim_commit_async() {
  %queue = call ptr @own_queue()
  %group = call i64 @field(ptr %queue, i64 ${queue.group})
  %next = add i64 %group, 1
  call void @set_field(ptr %queue, i64 ${queue.group}, i64 %next)
  ret void
}

; All but the last ``left`` committed groups of this thread are done.
define void @nw_sim_wait_async(i64 %left) {
  %queue = call ptr @own_queue()
  %open = call i64 @field(ptr %queue, i64 ${queue.group})
  %over = sub i64 %open, %left
  call void @nw_sim_land(i64 %over)
  ret void
}

; The number of this thread's open group of copies.
define i64 @nw_sim_group() {
  %queue = call ptr @own_queue()
  %open = call i64 @field(ptr %queue, i64 ${queue.group})
  ret i64 %open
}

; The groups of this thread below a number are done.
define void @nw_sim_land(i64 %over) {
entry:
  %queue = call ptr @own_queue()
  br label %test
test:
  %count = call i64 @field(ptr %queue, i64 ${queue.count})
  %some = icmp ne i64 %count, 0
  br i1 %some, label %look, label %out
look:
  %first = call i64 @field(ptr %queue, i64 ${queue.first})
  %entry_p = call ptr @entry(ptr %queue, i64 %first)
  %group = call i64 @field(ptr %entry_p, i64 ${copy.group})
  %done = icmp slt i64 %group, %over
  br i1 %done, label %land, label %out
land:
  %target_n = call i64 @field(ptr %entry_p, i64 ${copy.target})
  %source_n = call i64 @field(ptr %entry_p, i64 ${copy.source})
  %size = call i64 @field(ptr %entry_p, i64 ${copy.bytes})
  %real = call i64 @field(ptr %entry_p, i64 ${copy.real})
  %record_n = call i64 @field(ptr %entry_p, i64 ${copy.record})
  %target = inttoptr i64 %target_n to ptr
  %source = inttoptr i64 %source_n to ptr
  %record = inttoptr i64 %record_n to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %real, i1 false)
  %rest = getelementptr i8, ptr %target, i64 %real
  %zeros = sub i64 %size, %real
  call void @llvm.memset.p0.i64(ptr %rest, i8 0, i64 %zeros, i1 false)
  call void @nw_sim_mark(ptr %record, ptr %target, i64 %size, i32 0)
  %first1 = add i64 %first, 1
  %count1 = sub i64 %count, 1
  call void @set_field(ptr %queue, i64 ${queue.first}, i64 %first1)
  call void @set_field(ptr %queue, i64 ${queue.count}, i64 %count1)
  br label %test
out:
  ret void
}
