; The simulator's runtime in LLVM IR: its state, launches and blocks; see ``runtime.py``.
target triple = "${triple}"

@sim = internal global [${sizeof.sim} x i8] zeroinitializer, align 64
@report = internal global [${sizeof.report} x i8] zeroinitializer, align 64
@stopped = internal global i1 false
@running = internal global i1 false ; is a launch under way?
@turns = internal global i32 ${turns}
@seed = internal global i64 0
@draws = internal global i64 0
@launch = internal global ptr null
@threads = internal global i64 0
@warps = internal global i64 0
@block = internal global i64 0
@thread = internal global i64 0
@self = internal global i32 0
@state = internal global ptr null
@handles = internal global ptr null
@deposits = internal global ptr null
@slot_bytes = internal global i64 0
@frames = internal global ptr null
@frame_bytes = internal global i64 0
@steps = internal constant [16 x i64] [${steps}]
@time = internal global i32 0
@block_start = internal global i32 0
@block_since = internal global i32 0
@launch_start = internal global i32 1
@warp_since = internal global ptr null
@ranks = internal global i64 1 ; blocks that run together: those of a cluster
@hooks = internal global ptr null
@core = internal constant { ptr, ptr, ptr, ptr, ptr, ptr, ptr } { ptr @time, ptr @thread, ptr @self,
    ptr @block, ptr @block_since, ptr @state, ptr @launch }
declare ptr @nw_scratch(i64)
declare i64 @nw_scratch_mark()
declare void @nw_scratch_release(i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare ptr @realloc(ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.coro.resume(ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i1 @${poll}()

; What a kernel's module may add to this runtime (``structs.HOOKS``) finds its state here.
define ptr @nw_sim_core() {
  ret ptr @core
}
define internal ptr @hook(i64 %offset) {
entry:
  %hooks = load ptr, ptr @hooks
  %none = icmp eq ptr %hooks, null
  br i1 %none, label %no, label %yes
yes:
  %hook_p = getelementptr i8, ptr %hooks, i64 %offset
  %hook = load ptr, ptr %hook_p
  ret ptr %hook
no:
  ret ptr null
}
define internal void @run_hook(i64 %offset) {
entry:
  %hook = call ptr @hook(i64 %offset)
  %none = icmp eq ptr %hook, null
  br i1 %none, label %out, label %run
run:
  call void %hook()
  br label %out
out:
  ret void
}
; Threads first .. last - 1 have met at a barrier.
define internal void @threads_met(i64 %first, i64 %last) {
entry:
  %hook = call ptr @hook(i64 ${hooks.meet})
  %none = icmp eq ptr %hook, null
  br i1 %none, label %out, label %run
run:
  call void %hook(i64 %first, i64 %last)
  br label %out
out:
  ret void
}
define ptr @nw_sim_report() {
  ret ptr @report
}
define void @nw_sim_clear(i64 %seed) {
  call void @llvm.memset.p0.i64(ptr @report, i8 0, i64 ${sizeof.report}, i1 false)
  store i64 %seed, ptr @seed
  store i64 0, ptr @draws
  store i1 false, ptr @stopped
  ret void
}
define i1 @nw_sim_running() {
  %running = load i1, ptr @running
  ret i1 %running
}
define i1 @${stopped}() {
  %told = call i1 @${poll}()
  %before = load i1, ptr @stopped
  %now = or i1 %told, %before
  store i1 %now, ptr @stopped
  ret i1 %now
}

; Has the run ended? It is asked after each thread's turn, and polls after so many.
define i1 @nw_sim_failed() {
entry:
  %kind = load i64, ptr getelementptr (i8, ptr @report, i64 ${report.kind})
  %bad = icmp ne i64 %kind, 0
  %left = load i32, ptr @turns
  %less = sub i32 %left, 1
  %due = icmp slt i32 %less, 0
  br i1 %due, label %ask, label %count
count:
  store i32 %less, ptr @turns
  %stopped = load i1, ptr @stopped
  %ended = or i1 %bad, %stopped
  ret i1 %ended
ask:
  store i32 ${turns}, ptr @turns
  %told = call i1 @${stopped}()
  %over = or i1 %bad, %told
  ret i1 %over
}

; A place for this thread's frame, all of one size; the next block's lie in the same memory.
define ptr @nw_sim_frame(i64 %size) {
entry:
  %known = load ptr, ptr @frames
  %fresh = icmp eq ptr %known, null
  br i1 %fresh, label %make, label %take
make:
  %more = add i64 %size, 63
  %padded = and i64 %more, -64
  %threads = load i64, ptr @threads
  %all = mul i64 %padded, %threads
  %made = call ptr @nw_scratch(i64 %all)
  store ptr %made, ptr @frames
  store i64 %padded, ptr @frame_bytes
  br label %take
take:
  %base = load ptr, ptr @frames
  %bytes = load i64, ptr @frame_bytes
  %thread = load i64, ptr @thread
  %at = mul i64 %thread, %bytes
  %frame = getelementptr i8, ptr %base, i64 %at
  ret ptr %frame
}

; Where this thread puts the addresses of its operands.
define ptr @nw_sim_deposit() {
  %base = load ptr, ptr @deposits
  %bytes = load i64, ptr @slot_bytes
  %thread = load i64, ptr @thread
  %at = mul i64 %thread, %bytes
  %slot = getelementptr i8, ptr %base, i64 %at
  ret ptr %slot
}

; This thread's state from now on.
define void @nw_sim_wait(i32 %state) {
  %base = load ptr, ptr @state
  %thread = load i64, ptr @thread
  %slot = getelementptr i32, ptr %base, i64 %thread
  store i32 %state, ptr %slot
  ret void
}

define i64 @nw_sim_draw() {
  %count = load i64, ptr @draws
  %next = add i64 %count, 1
  store i64 %next, ptr @draws
  %seed = load i64, ptr @seed
  %spread = mul i64 %next, -7046029254386353131
  %from = xor i64 %seed, %spread
  %a = lshr i64 %from, 30
  %b = xor i64 %from, %a
  %c = mul i64 %b, -4658895280553007687
  %d = lshr i64 %c, 27
  %e = xor i64 %c, %d
  %f = mul i64 %e, -7723592293110705685
  %g = lshr i64 %f, 31
  %h = xor i64 %f, %g
  ret i64 %h
}

; The first of n numbers and the step from each to the next, modulo n.
define internal { i64, i64 } @order(i64 %n) {
  %bits = call i64 @nw_sim_draw()
  %which = and i64 %bits, 15
  %prime_p = getelementptr i64, ptr @steps, i64 %which
  %prime = load i64, ptr %prime_p
  %step = urem i64 %prime, %n
  %rest = lshr i64 %bits, 4
  %first = urem i64 %rest, %n
  %one = insertvalue { i64, i64 } poison, i64 %first, 0
  %both = insertvalue { i64, i64 } %one, i64 %step, 1
  ret { i64, i64 } %both
}

define internal i64 @after(i64 %at, i64 %step, i64 %n) alwaysinline {
  %sum = add i64 %at, %step
  %over = icmp uge i64 %sum, %n
  %less = sub i64 %sum, %n
  %next = select i1 %over, i64 %less, i64 %sum
  ret i64 %next
}

define internal i64 @field(ptr %record, i64 %offset) alwaysinline {
  %p = getelementptr i8, ptr %record, i64 %offset
  %value = load i64, ptr %p
  ret i64 %value
}

define internal void @set_field(ptr %record, i64 %offset, i64 %value) alwaysinline {
  %p = getelementptr i8, ptr %record, i64 %offset
  store i64 %value, ptr %p
  ret void
}

define void @nw_sim_launch(ptr %launch, ptr %args) {
entry:
  %failed = call i1 @nw_sim_failed()
  br i1 %failed, label %out, label %begin
begin:
  store i1 true, ptr @running
  %mark = call i64 @nw_scratch_mark()
  store ptr %launch, ptr @launch
  call void @make_room(ptr %launch)
  %args_n = ptrtoint ptr %args to i64
  call void @set_field(ptr @sim, i64 ${sim.args}, i64 %args_n)
  %shared_bytes = call i64 @all_shared_bytes(ptr %launch)
  %shared = call ptr @nw_scratch(i64 %shared_bytes)
  %shared_n = ptrtoint ptr %shared to i64
  call void @set_field(ptr @sim, i64 ${sim.shared}, i64 %shared_n)
  store i32 1, ptr @time
  call void @open_records(ptr %launch, ptr %args)
  call void @open_parts(ptr %launch)
  call void @open_queues()
  %hooks_n = call i64 @field(ptr %launch, i64 ${launch.hooks})
  %hooks = inttoptr i64 %hooks_n to ptr
  store ptr %hooks, ptr @hooks
  call void @run_hook(i64 ${hooks.open})
  call void @open_arrivals(ptr %launch)
  call void @run_blocks(ptr %launch)
  call void @close_arrivals(ptr %launch)
  call void @close_queues()
  call void @close_parts()
  call void @close_records(ptr %launch)
  call void @nw_scratch_release(i64 %mark)
  store i1 false, ptr @running
  br label %out
out:
  ret void
}

define internal void @make_room(ptr %launch) {
  %x = call i64 @field(ptr %launch, i64 ${launch.block.x})
  %y = call i64 @field(ptr %launch, i64 ${launch.block.y})
  %z = call i64 @field(ptr %launch, i64 ${launch.block.z})
  %xy = mul i64 %x, %y
  %each = mul i64 %xy, %z
  %ranks = call i64 @open_clusters(ptr %launch)
  %threads = mul i64 %each, %ranks
  store i64 %threads, ptr @threads
  %more = add i64 %threads, 31
  %warps = lshr i64 %more, 5
  store i64 %warps, ptr @warps
  %four = shl i64 %threads, 2
  %eight = shl i64 %threads, 3
  %state = call ptr @nw_scratch(i64 %four)
  store ptr %state, ptr @state
  %handles = call ptr @nw_scratch(i64 %eight)
  store ptr %handles, ptr @handles
  %since_bytes = shl i64 %warps, 2
  %since = call ptr @nw_scratch(i64 %since_bytes)
  store ptr %since, ptr @warp_since
  %slots = call i64 @field(ptr %launch, i64 ${launch.slots})
  %slot_bytes = shl i64 %slots, 3
  store i64 %slot_bytes, ptr @slot_bytes
  %deposit_bytes = mul i64 %slot_bytes, %threads
  %deposits = call ptr @nw_scratch(i64 %deposit_bytes)
  store ptr %deposits, ptr @deposits
  ret void
}

define internal void @run_blocks(ptr %launch) {
entry:
  %x = call i64 @field(ptr %launch, i64 ${launch.grid.x})
  %y = call i64 @field(ptr %launch, i64 ${launch.grid.y})
  %z = call i64 @field(ptr %launch, i64 ${launch.grid.z})
  %xy = mul i64 %x, %y
  %every = mul i64 %xy, %z
  %ranks = load i64, ptr @ranks
  %blocks = udiv i64 %every, %ranks
  %bytes = call i64 @all_shared_bytes(ptr %launch)
  %shared_n = call i64 @field(ptr @sim, i64 ${sim.shared})
  %shared = inttoptr i64 %shared_n to ptr
  %suspends = call i64 @field(ptr %launch, i64 ${launch.suspends})
  %plain = icmp eq i64 %suspends, 0
  %some = icmp ne i64 %blocks, 0
  br i1 %some, label %begin, label %out
begin:
  %order = call { i64, i64 } @order(i64 %blocks)
  %first = extractvalue { i64, i64 } %order, 0
  %step = extractvalue { i64, i64 } %order, 1
  br label %next
next:
  %i = phi i64 [ 0, %begin ], [ %i1, %ran ]
  %block = phi i64 [ %first, %begin ], [ %after, %ran ]
  store i64 %block, ptr @block
  %bx = urem i64 %block, %x
  %rest = udiv i64 %block, %x
  %by = urem i64 %rest, %y
  %bz = udiv i64 %rest, %y
  call void @set_field(ptr @sim, i64 ${sim.blockIdx.x}, i64 %bx)
  call void @set_field(ptr @sim, i64 ${sim.blockIdx.y}, i64 %by)
  call void @set_field(ptr @sim, i64 ${sim.blockIdx.z}, i64 %bz)
  call void @order_block()
  %now = load i32, ptr @time
  store i32 %now, ptr @block_start
  store i32 0, ptr @joined
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %bytes, i1 false)
  call void @reset_queues()
  call void @run_hook(i64 ${hooks.begin})
  store ptr null, ptr @frames
  %mark = call i64 @nw_scratch_mark()
  br i1 %plain, label %alone, label %together
alone:
  call void @run_threads(ptr %launch)
  br label %ran
together:
  call void @start_threads(ptr %launch)
  call void @run_rounds()
  call void @run_hook(i64 ${hooks.end})
  call void @close_cluster()
  br label %ran
ran:
  call void @nw_scratch_release(i64 %mark)
  %failed = call i1 @nw_sim_failed()
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %blocks
  %after = call i64 @after(i64 %block, i64 %step, i64 %blocks)
  %stop = xor i1 %failed, true
  %go = and i1 %more, %stop
  br i1 %go, label %next, label %out
out:
  ret void
}

; All that the block has done is ordered before what comes.
define internal void @order_block() {
entry:
  %old = load i32, ptr @time
  %now = add i32 %old, 1
  store i32 %now, ptr @time
  store i32 %now, ptr @block_since
  call void @order_blocks(i32 %now)
  %warps = load i64, ptr @warps
  %since = load ptr, ptr @warp_since
  br label %next
next:
  %w = phi i64 [ 0, %entry ], [ %w1, %next ]
  %p = getelementptr i32, ptr %since, i64 %w
  store i32 %now, ptr %p
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %warps
  br i1 %more, label %next, label %out
out:
  ret void
}

define internal void @order_warp(i64 %warp) alwaysinline {
  %old = load i32, ptr @time
  %now = add i32 %old, 1
  store i32 %now, ptr @time
  %since = load ptr, ptr @warp_since
  %p = getelementptr i32, ptr %since, i64 %warp
  store i32 %now, ptr %p
  ret void
}

; This is thread t now, and its number over the whole launch, counted from 1.
define internal void @turn_to(i64 %t) alwaysinline {
entry:
  %block = load i64, ptr @block
  %threads = load i64, ptr @threads
  %first = mul i64 %block, %threads
  %sum = add i64 %first, %t
  %counted = add i64 %sum, 1
  %number = trunc i64 %counted to i32
  store i64 %t, ptr @thread
  store i32 %number, ptr @self
  %ranks = load i64, ptr @ranks
  %several = icmp ugt i64 %ranks, 1
  br i1 %several, label %cluster, label %out
cluster:
  call void @turn_to_block(i64 %t)
  br label %out
out:
  ret void
}

define void @nw_sim_turn_to(i64 %t) {
  call void @turn_to(i64 %t)
  ret void
}

; A thread that starts must know its indices too.
define internal void @become(ptr %launch, i64 %thread) {
entry:
  call void @turn_to(i64 %thread)
  call void @become_block(ptr %launch, i64 %thread)
  %each = call i64 @block_threads()
  %t = urem i64 %thread, %each
  %x = call i64 @field(ptr %launch, i64 ${launch.block.x})
  %flat = icmp eq i64 %x, %each
  br i1 %flat, label %one, label %three
one:
  call void @set_field(ptr @sim, i64 ${sim.threadIdx.x}, i64 %t)
  call void @set_field(ptr @sim, i64 ${sim.threadIdx.y}, i64 0)
  call void @set_field(ptr @sim, i64 ${sim.threadIdx.z}, i64 0)
  ret void
three:
  %y = call i64 @field(ptr %launch, i64 ${launch.block.y})
  %tx = urem i64 %t, %x
  %rest = udiv i64 %t, %x
  %ty = urem i64 %rest, %y
  %tz = udiv i64 %rest, %y
  call void @set_field(ptr @sim, i64 ${sim.threadIdx.x}, i64 %tx)
  call void @set_field(ptr @sim, i64 ${sim.threadIdx.y}, i64 %ty)
  call void @set_field(ptr @sim, i64 ${sim.threadIdx.z}, i64 %tz)
  ret void
}
