; Clusters in LLVM IR: blocks that run together, wait for each other, and read each other's memory.
;
; The threads of a cluster's blocks are numbered one block after the other, and run as those of one
; block do. Each block has a part of shared memory and of its shadow, records that point there, and
; the time since which its own barrier orders nothing; what orders blocks is the cluster's barrier.
; ``ptr nw_sim_remote(ptr record, ptr at, i64 size, i64 rank)`` checks a read of what the block of
; that rank has in place of this block's ``at`` and gives the address, null after a fault.

@cluster_since = internal global i32 0
@block_sinces = internal global ptr null
@shared_base = internal global i64 0
@records_base = internal global i64 0
@read_when = internal global ptr null ; of each block: when another one read it last, who, what
@read_by = internal global ptr null
@read_what = internal global ptr null

define internal i64 @open_clusters(ptr %launch) {
  %x = call i64 @field(ptr %launch, i64 ${launch.ranks.x})
  %y = call i64 @field(ptr %launch, i64 ${launch.ranks.y})
  %z = call i64 @field(ptr %launch, i64 ${launch.ranks.z})
  %xy = mul i64 %x, %y
  %ranks = mul i64 %xy, %z
  store i64 %ranks, ptr @ranks
  %four = shl i64 %ranks, 2
  %eight = shl i64 %ranks, 3
  %sinces = call ptr @nw_scratch(i64 %four)
  store ptr %sinces, ptr @block_sinces
  %when = call ptr @nw_scratch(i64 %four)
  store ptr %when, ptr @read_when
  %by = call ptr @nw_scratch(i64 %eight)
  store ptr %by, ptr @read_by
  %what = call ptr @nw_scratch(i64 %eight)
  store ptr %what, ptr @read_what
  call void @llvm.memset.p0.i64(ptr %when, i8 0, i64 %four, i1 false)
  ret i64 %ranks
}

define internal i64 @all_shared_bytes(ptr %launch) {
  %bytes = call i64 @field(ptr %launch, i64 ${launch.shared_bytes})
  %ranks = load i64, ptr @ranks
  %all = mul i64 %bytes, %ranks
  ret i64 %all
}

define internal i64 @block_threads() alwaysinline {
  %threads = load i64, ptr @threads
  %ranks = load i64, ptr @ranks
  %each = udiv i64 %threads, %ranks
  ret i64 %each
}

; Records of every block's part of shared memory, one block's after the other's.
define internal void @open_parts(ptr %launch) {
entry:
  %shared_n = call i64 @field(ptr @sim, i64 ${sim.shared})
  store i64 %shared_n, ptr @shared_base
  %records_n = call i64 @field(ptr @sim, i64 ${sim.buffers})
  store i64 %records_n, ptr @records_base
  %records = inttoptr i64 %records_n to ptr
  %count = call i64 @field(ptr %launch, i64 ${launch.count})
  %size = mul i64 %count, ${sizeof.sim_record}
  %ranks = load i64, ptr @ranks
  br label %test
test:
  %rank = phi i64 [ 1, %entry ], [ %rank1, %copied ]
  %more = icmp ult i64 %rank, %ranks
  br i1 %more, label %copy, label %out
copy:
  %skip = mul i64 %rank, %size
  %to = getelementptr i8, ptr %records, i64 %skip
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %records, i64 %size, i1 false)
  br label %one_test
one_test:
  %i = phi i64 [ 0, %copy ], [ %i1, %one ]
  %left = icmp ult i64 %i, %count
  br i1 %left, label %one, label %copied
one:
  %record = getelementptr [${sizeof.sim_record} x i8], ptr %to, i64 %i
  call void @move_part(ptr %launch, ptr %record, i64 %rank)
  %i1 = add i64 %i, 1
  br label %one_test
copied:
  %rank1 = add i64 %rank, 1
  br label %test
out:
  ret void
}

define internal void @move_part(ptr %launch, ptr %record, i64 %rank) {
entry:
  %static_n = call i64 @field(ptr %record, i64 ${sim_record.static})
  %static = inttoptr i64 %static_n to ptr
  %arg = call i64 @field(ptr %static, i64 ${buffer.arg})
  %is_shared = icmp slt i64 %arg, 0
  br i1 %is_shared, label %move, label %out
move:
  %bytes = call i64 @field(ptr %launch, i64 ${launch.shared_bytes})
  %skip = mul i64 %rank, %bytes
  %base = call i64 @field(ptr %record, i64 ${sim_record.base})
  %moved = add i64 %base, %skip
  call void @set_field(ptr %record, i64 ${sim_record.base}, i64 %moved)
  %cells = call i64 @field(ptr %record, i64 ${sim_record.cells})
  %some = icmp ne i64 %cells, 0
  br i1 %some, label %shadow, label %out
shadow:
  %granule = call i64 @field(ptr %launch, i64 ${launch.granule})
  %count = lshr i64 %skip, %granule
  %cell_bytes = mul i64 %count, ${sizeof.cell}
  %moved_cells = add i64 %cells, %cell_bytes
  call void @set_field(ptr %record, i64 ${sim_record.cells}, i64 %moved_cells)
  br label %out
out:
  ret void
}

define internal void @close_parts() {
  %records = load i64, ptr @records_base
  call void @set_field(ptr @sim, i64 ${sim.buffers}, i64 %records)
  ret void
}

; A thread that starts finds its block's indices, memory and records.
define internal void @become_block(ptr %launch, i64 %t) {
entry:
  %ranks = load i64, ptr @ranks
  %several = icmp ugt i64 %ranks, 1
  br i1 %several, label %find, label %out
find:
  %each = call i64 @block_threads()
  %rank = udiv i64 %t, %each
  %bytes = call i64 @field(ptr %launch, i64 ${launch.shared_bytes})
  %skip = mul i64 %rank, %bytes
  %base = load i64, ptr @shared_base
  %shared = add i64 %base, %skip
  call void @set_field(ptr @sim, i64 ${sim.shared}, i64 %shared)
  %count = call i64 @field(ptr %launch, i64 ${launch.count})
  %size = mul i64 %count, ${sizeof.sim_record}
  %before = mul i64 %rank, %size
  %first = load i64, ptr @records_base
  %records = add i64 %first, %before
  call void @set_field(ptr @sim, i64 ${sim.buffers}, i64 %records)
  %cluster = load i64, ptr @block
  %gx = call i64 @field(ptr %launch, i64 ${launch.grid.x})
  %gy = call i64 @field(ptr %launch, i64 ${launch.grid.y})
  %cx = call i64 @field(ptr %launch, i64 ${launch.ranks.x})
  %cy = call i64 @field(ptr %launch, i64 ${launch.ranks.y})
  %cz = call i64 @field(ptr %launch, i64 ${launch.ranks.z})
  %nx = udiv i64 %gx, %cx
  %ny = udiv i64 %gy, %cy
  %x = urem i64 %cluster, %nx
  %yz = udiv i64 %cluster, %nx
  %y = urem i64 %yz, %ny
  %z = udiv i64 %yz, %ny
  %rx = urem i64 %rank, %cx
  %ryz = udiv i64 %rank, %cx
  %ry = urem i64 %ryz, %cy
  %rz = udiv i64 %ryz, %cy
  %x0 = mul i64 %x, %cx
  %y0 = mul i64 %y, %cy
  %z0 = mul i64 %z, %cz
  %bx = add i64 %x0, %rx
  %by = add i64 %y0, %ry
  %bz = add i64 %z0, %rz
  call void @set_field(ptr @sim, i64 ${sim.blockIdx.x}, i64 %bx)
  call void @set_field(ptr @sim, i64 ${sim.blockIdx.y}, i64 %by)
  call void @set_field(ptr @sim, i64 ${sim.blockIdx.z}, i64 %bz)
  br label %out
out:
  ret void
}

; What a block's own barrier orders is looked up by each of its threads.
define internal void @turn_to_block(i64 %t) {
  %each = call i64 @block_threads()
  %rank = udiv i64 %t, %each
  %sinces = load ptr, ptr @block_sinces
  %p = getelementptr i32, ptr %sinces, i64 %rank
  %since = load i32, ptr %p
  store i32 %since, ptr @block_since
  ret void
}

; All blocks that run are ordered at a time.
define internal void @order_blocks(i32 %now) {
entry:
  store i32 %now, ptr @cluster_since
  %ranks = load i64, ptr @ranks
  %sinces = load ptr, ptr @block_sinces
  br label %next
next:
  %rank = phi i64 [ 0, %entry ], [ %rank1, %next ]
  %p = getelementptr i32, ptr %sinces, i64 %rank
  store i32 %now, ptr %p
  %rank1 = add i64 %rank, 1
  %more = icmp ult i64 %rank1, %ranks
  br i1 %more, label %next, label %out
out:
  ret void
}

; The threads of the block whose first one is given have met.
define internal void @order_one_block(i64 %first) {
entry:
  %ranks = load i64, ptr @ranks
  %several = icmp ugt i64 %ranks, 1
  br i1 %several, label %one, label %all
all:
  call void @order_block()
  ret void
one:
  %old = load i32, ptr @time
  %now = add i32 %old, 1
  store i32 %now, ptr @time
  %each = call i64 @block_threads()
  %rank = udiv i64 %first, %each
  %sinces = load ptr, ptr @block_sinces
  %p = getelementptr i32, ptr %sinces, i64 %rank
  store i32 %now, ptr %p
  %warp = lshr i64 %first, 5
  %count = lshr i64 %each, 5
  %end = add i64 %warp, %count
  %since = load ptr, ptr @warp_since
  br label %next
next:
  %w = phi i64 [ %warp, %one ], [ %w1, %next ]
  %q = getelementptr i32, ptr %since, i64 %w
  store i32 %now, ptr %q
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %end
  br i1 %more, label %next, label %out
out:
  ret void
}

; Since when what two threads that run together do is not ordered; ``within`` says it of one block.
define internal ptr @since_of(i64 %thread, i64 %other, ptr %within) alwaysinline {
  %each = call i64 @block_threads()
  %rank = udiv i64 %thread, %each
  %rank_of = udiv i64 %other, %each
  %same = icmp eq i64 %rank, %rank_of
  %since = select i1 %same, ptr %within, ptr @cluster_since
  ret ptr %since
}

define ptr @nw_sim_remote(ptr %record, ptr %at, i64 %size, i64 %rank) {
entry:
  %launch = load ptr, ptr @launch
  %ranks = load i64, ptr @ranks
  %there = icmp ult i64 %rank, %ranks
  br i1 %there, label %move, label %nobody
nobody:
  %base = call i64 @field(ptr %record, i64 ${sim_record.base})
  %at_n = ptrtoint ptr %at to i64
  %offset = sub i64 %at_n, %base
  call void @tell(i64 ${kind.NO_BLOCK}, ptr %record, i64 %offset, i64 0, i32 1, i1 false)
  call void @set_field(ptr @report, i64 ${report.expected}, i64 %ranks)
  call void @set_field(ptr @report, i64 ${report.phase}, i64 %rank)
  ret ptr null
move:
  %thread = load i64, ptr @thread
  %each = call i64 @block_threads()
  %own = udiv i64 %thread, %each
  %way = sub i64 %rank, %own
  %bytes = call i64 @field(ptr %launch, i64 ${launch.shared_bytes})
  %skip = mul i64 %way, %bytes
  %target = getelementptr i8, ptr %at, i64 %skip
  %count = call i64 @field(ptr %launch, i64 ${launch.count})
  %part = mul i64 %count, ${sizeof.sim_record}
  %before = mul i64 %way, %part
  %moved = getelementptr i8, ptr %record, i64 %before
  %mine = icmp eq i64 %way, 0
  br i1 %mine, label %look, label %note
note:
  %now = load i32, ptr @time
  %when = load ptr, ptr @read_when
  %when_p = getelementptr i32, ptr %when, i64 %rank
  store i32 %now, ptr %when_p
  %by = load ptr, ptr @read_by
  %by_p = getelementptr i64, ptr %by, i64 %rank
  store i64 %thread, ptr %by_p
  %what = load ptr, ptr @read_what
  %what_p = getelementptr ptr, ptr %what, i64 %rank
  store ptr %moved, ptr %what_p
  br label %look
look:
  %bad = call i1 @nw_sim_access(ptr %moved, ptr %target, i64 %size, i64 ${how.ALIGNED})
  %answer = select i1 %bad, ptr null, ptr %target
  ret ptr %answer
}

; All threads have ended: was each block's memory read before a barrier that it waited at?
define internal void @close_cluster() {
entry:
  %ranks = load i64, ptr @ranks
  %alone = icmp eq i64 %ranks, 1
  %failed = call i1 @nw_sim_failed()
  %skip = or i1 %alone, %failed
  br i1 %skip, label %out, label %start
start:
  %since = load i32, ptr @cluster_since
  %when = load ptr, ptr @read_when
  br label %next
next:
  %rank = phi i64 [ 0, %start ], [ %rank1, %fine ]
  %p = getelementptr i32, ptr %when, i64 %rank
  %last = load i32, ptr %p
  %late = icmp uge i32 %last, %since
  br i1 %late, label %tell, label %fine
fine:
  %rank1 = add i64 %rank, 1
  %more = icmp ult i64 %rank1, %ranks
  br i1 %more, label %next, label %out
tell:
  %by = load ptr, ptr @read_by
  %by_p = getelementptr i64, ptr %by, i64 %rank
  %reader = load i64, ptr %by_p
  store i64 %reader, ptr @thread
  %what = load ptr, ptr @read_what
  %what_p = getelementptr ptr, ptr %what, i64 %rank
  %record = load ptr, ptr %what_p
  %block = load i64, ptr @block
  %threads = load i64, ptr @threads
  %each = call i64 @block_threads()
  %first = mul i64 %block, %threads
  %before = mul i64 %rank, %each
  %sum = add i64 %first, %before
  %counted = add i64 %sum, 1
  %other = trunc i64 %counted to i32
  call void @tell(i64 ${kind.ENDED}, ptr %record, i64 0, i64 0, i32 %other, i1 false)
  br label %out
out:
  ret void
}
