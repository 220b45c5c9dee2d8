; Shadow memory in LLVM IR: who touched what and when, and which accesses are out of order.
;
; ``i1 nw_sim_access(ptr record, ptr at, i64 size, i64 how)`` is called before an access of the
; thread that runs; ``how`` is ``WRITES`` or 0, plus ``ALIGNED`` where the machine wants the address
; to be a multiple of the size. True means that a fault was reported and the access must not be
; made.
;
; A cell (``structs.CELL``) stands for every granule (the smallest element of the memory): when it
; was written last, by whom and as part of which buffer, when it was read last, and up to two
; readers. A thread is a number over the whole launch, from 1 on. Two accesses are unordered if the
; later one's last barrier with the earlier thread lies before the earlier access: the block's for
; threads of a block, the warp's for those of a warp, and for those of different blocks none but the
; beginning of the launch, and for the last block at a counter the arrivals of the others. Shared
; memory also knows what nothing was written to since the block began, or since it became another
; buffer's, and what a copy under way is going to write.

define i1 @nw_sim_access(ptr %record, ptr %at, i64 %size, i64 %how) {
entry:
  %base = call i64 @field(ptr %record, i64 ${sim_record.base})
  %bytes = call i64 @field(ptr %record, i64 ${sim_record.bytes})
  %at_n = ptrtoint ptr %at to i64
  %offset = sub i64 %at_n, %base
  %end = add i64 %offset, %size
  %above = icmp ugt i64 %offset, %bytes
  %beyond = icmp ugt i64 %end, %bytes
  %outside = or i1 %above, %beyond
  br i1 %outside, label %bounds, label %inside
bounds:
  call void @tell(i64 ${kind.BOUNDS}, ptr %record, i64 %offset, i64 %how, i32 1, i1 false)
  ret i1 true
inside:
  %strict = and i64 %how, ${how.ALIGNED}
  %free = icmp eq i64 %strict, 0
  br i1 %free, label %watch, label %check
check:
  %below = sub i64 %size, 1
  %rest = and i64 %offset, %below
  %straight = icmp eq i64 %rest, 0
  br i1 %straight, label %watch, label %misaligned
misaligned:
  call void @tell(i64 ${kind.MISALIGNED}, ptr %record, i64 %offset, i64 %how, i32 1, i1 false)
  ret i1 true
watch:
  %cells_n = call i64 @field(ptr %record, i64 ${sim_record.cells})
  %cells = inttoptr i64 %cells_n to ptr
  %none = icmp eq i64 %cells_n, 0
  %empty = icmp eq i64 %size, 0
  %idle = or i1 %none, %empty
  br i1 %idle, label %good, label %walk
walk:
  %shift = call i64 @field(ptr %record, i64 ${sim_record.shift})
  %first = lshr i64 %offset, %shift
  %byte = sub i64 %end, 1
  %last = lshr i64 %byte, %shift
  %me = load i32, ptr @self
  %now = load i32, ptr @time
  %w = and i64 %how, ${how.WRITES}
  %reads = icmp eq i64 %w, 0
  %p = and i64 %how, ${how.PROXY}
  %plain = icmp eq i64 %p, 0
  %place = select i1 %reads, i64 ${cell.read}, i64 ${cell.written}
  %mark = call i32 @mark_of(ptr %record)
  %others_n = call i64 @field(ptr %record, i64 ${sim_record.others})
  %start_n = ptrtoint ptr @block_start to i64
  %is_shared = icmp eq i64 %others_n, %start_n
  %shared_read = and i1 %is_shared, %reads
  %ranks = load i64, ptr @ranks
  %alone = icmp eq i64 %ranks, 1
  %near_read = and i1 %shared_read, %alone ; other blocks of a cluster read and wait apart
  %tile_read = and i1 %near_read, %plain
  %start = load i32, ptr @block_start
  %since = load i32, ptr @block_since
  %window = sub i32 %since, %start
  br label %next
next:
  %i = phi i64 [ %first, %walk ], [ %i1, %step ]
  %skip = mul i64 %i, ${sizeof.cell}
  %cell = getelementptr i8, ptr %cells, i64 %skip
  %by_p = getelementptr i8, ptr %cell, i64 ${cell.by}
  %one_p = getelementptr i8, ptr %cell, i64 ${cell.one}
  %two_p = getelementptr i8, ptr %cell, i64 ${cell.two}
  %part_p = getelementptr i8, ptr %cell, i64 ${cell.part}
  %by = load i32, ptr %by_p
  %one = load i32, ptr %one_p
  %two = load i32, ptr %two_p
  %part = load i32, ptr %part_p
  %by_me = icmp eq i32 %by, %me
  %one_me = icmp eq i32 %one, %me
  %two_me = icmp eq i32 %two, %me
  %both_me = and i1 %one_me, %two_me
  %all_me = and i1 %by_me, %both_me
  %same = icmp eq i32 %part, %mark
  %whole = and i1 %all_me, %same
  %own = and i1 %whole, %plain
  br i1 %own, label %quick, label %other
quick:
  %slot = getelementptr i8, ptr %cell, i64 %place
  store i32 %now, ptr %slot
  br label %step
other:
  %written_p = getelementptr i8, ptr %cell, i64 ${cell.written}
  %written = load i32, ptr %written_p
  %read_p = getelementptr i8, ptr %cell, i64 ${cell.read}
  %when = load i32, ptr %read_p
  br i1 %tile_read, label %tile, label %maybe_fresh
tile: ; written in this block before the last barrier, as a part of this buffer, and landed?
  %age = sub i32 %written, %start
  %settled = icmp ult i32 %age, %window
  %landed = icmp sge i32 %by, 0
  %settled2 = and i1 %settled, %landed
  %ordered = and i1 %settled2, %same
  br i1 %ordered, label %readers, label %full
readers: ; two readers since the barrier are enough, and those before it do not matter
  %at_once = icmp eq i32 %when, %now
  %two_of_them = icmp ne i32 %one, %two
  %enough = and i1 %at_once, %two_of_them
  br i1 %enough, label %step, label %fewer
fewer:
  %earlier = icmp ult i32 %when, %since
  br i1 %earlier, label %first_reader, label %full
first_reader:
  store i32 %now, ptr %read_p
  store i32 %me, ptr %one_p
  store i32 %me, ptr %two_p
  br label %step
maybe_fresh:
  %any = or i32 %written, %when
  %never = icmp eq i32 %any, 0
  %writes = xor i1 %reads, true
  %fresh = and i1 %never, %writes
  br i1 %fresh, label %first_touch, label %full
first_touch:
  store i32 %now, ptr %written_p
  store i32 %me, ptr %by_p
  store i32 %now, ptr %read_p
  store i32 %me, ptr %one_p
  store i32 %me, ptr %two_p
  store i32 %mark, ptr %part_p
  br label %step
full:
  %fault = call i1 @touch(ptr %record, ptr %cell, i64 %i, i64 %how)
  br label %step
step:
  %bad = phi i1 [ false, %quick ], [ false, %first_touch ], [ false, %readers ],
                [ false, %first_reader ], [ %fault, %full ]
  %i1 = add i64 %i, 1
  %more = icmp ule i64 %i1, %last
  %fine = xor i1 %bad, true
  %go = and i1 %more, %fine
  br i1 %go, label %next, label %out
out:
  ret i1 %bad
good:
  ret i1 false
}

; What stands for a buffer in cells.
define internal i32 @mark_of(ptr %record) alwaysinline {
  %number = ptrtoint ptr %record to i64
  %mark = trunc i64 %number to i32
  ret i32 %mark
}

; An access to ``size`` bytes that must be aligned, or to none at all.
define i1 @nw_sim_row(ptr %record, ptr %at, i64 %size, i64 %how) {
entry:
  %none = icmp eq i64 %size, 0
  br i1 %none, label %skip, label %check
skip:
  ret i1 false
check:
  %bad = call i1 @nw_sim_access(ptr %record, ptr %at, i64 %size, i64 %how)
  ret i1 %bad
}

; Whether an access of thread ``other`` at a time is not ordered before this thread's next.
define internal i1 @unordered(ptr %record, i32 %other, i32 %when) {
entry:
  %block = load i64, ptr @block
  %threads = load i64, ptr @threads
  %first = mul i64 %block, %threads
  %number = sub i32 %other, 1
  %other64 = zext i32 %number to i64
  %relative = sub i64 %other64, %first
  %here = icmp ult i64 %relative, %threads
  br i1 %here, label %near, label %far
near:
  %hooks = load ptr, ptr @hooks
  %none = icmp eq ptr %hooks, null
  br i1 %none, label %barriers, label %ask
ask: ; the threads of this launch also order themselves by other means
  %hook = call ptr @hook(i64 ${hooks.unordered})
  %apart = call i1 %hook(i64 %relative, i32 %when)
  ret i1 %apart
barriers:
  %thread = load i64, ptr @thread
  %warp = lshr i64 %thread, 5
  %warp_of = lshr i64 %relative, 5
  %same = icmp eq i64 %warp, %warp_of
  %table = load ptr, ptr @warp_since
  %warp_p = getelementptr i32, ptr %table, i64 %warp
  %within = select i1 %same, ptr %warp_p, ptr @block_since
  %since_p = call ptr @since_of(i64 %thread, i64 %relative, ptr %within)
  br label %compare
far:
  %far_n = call i64 @field(ptr %record, i64 ${sim_record.others})
  %far_p = inttoptr i64 %far_n to ptr
  %far_since = load i32, ptr %far_p
  %far_after = icmp uge i32 %when, %far_since
  br i1 %far_after, label %counters, label %ordered
counters: ; or did the other block arrive at a counter before this one?
  %other_block = udiv i64 %other64, %threads
  %other_thread = urem i64 %other64, %threads
  %came = call i1 @arrived_before(i64 %other_block, i64 %other_thread, i32 %when)
  %apart_still = xor i1 %came, true
  ret i1 %apart_still
ordered:
  ret i1 false
compare:
  %since = load i32, ptr %since_p
  %after = icmp uge i32 %when, %since
  ret i1 %after
}

define internal i1 @touch(ptr %record, ptr %cell, i64 %i, i64 %how) {
entry:
  %me = load i32, ptr @self
  %written_p = getelementptr i8, ptr %cell, i64 ${cell.written}
  %written = load i32, ptr %written_p
  %by_p = getelementptr i8, ptr %cell, i64 ${cell.by}
  %by_all = load i32, ptr %by_p
  %by = and i32 %by_all, ${WRITER_BITS}
  %start = load i32, ptr @block_start
  %old = icmp ult i32 %written, %start
  %mark = call i32 @mark_of(ptr %record)
  %part_p = getelementptr i8, ptr %cell, i64 ${cell.part}
  %part = load i32, ptr %part_p
  %elsewhere = icmp ne i32 %part, %mark
  %stale = or i1 %old, %elsewhere
  %others_n = call i64 @field(ptr %record, i64 ${sim_record.others})
  %start_n = ptrtoint ptr @block_start to i64
  %is_shared = icmp eq i64 %others_n, %start_n
  %w = and i64 %how, ${how.WRITES}
  %reads = icmp eq i64 %w, 0
  %raw = and i1 %stale, %is_shared
  %unwritten = and i1 %raw, %reads
  br i1 %unwritten, label %fresh, label %known
fresh:
  call void @tell_cell(i64 ${kind.UNWRITTEN}, ptr %record, i64 %i, i64 %how, i32 %me, i1 false)
  ret i1 true
known:
  %under_way = icmp slt i32 %by_all, 0
  %current = xor i1 %old, true
  %pending = and i1 %under_way, %current
  br i1 %pending, label %early, label %landed
early:
  call void @tell_cell(i64 ${kind.PENDING}, ptr %record, i64 %i, i64 %how, i32 %by, i1 true)
  ret i1 true
landed:
  %ever = icmp ne i32 %written, 0
  %hooks = load ptr, ptr @hooks
  %plain = icmp eq ptr %hooks, null
  br i1 %plain, label %common, label %proxies
proxies:
  %copied_n = and i32 %by, ${LANDED_BIT}
  %copied = icmp ne i32 %copied_n, 0
  %p = and i64 %how, ${how.PROXY}
  %proxied = icmp ne i64 %p, 0
  %special = or i1 %copied, %proxied
  %check = and i1 %ever, %special
  %live = and i1 %check, %current
  %stored = xor i1 %copied, true
  br i1 %live, label %asynchronous, label %common
asynchronous: ; the one or the other is done by the asynchronous proxy
  %unfenced = call ptr @hook(i64 ${hooks.unfenced})
  %wrong = call i64 %unfenced(i32 %by, i32 %written, i64 %how)
  %fine = icmp eq i64 %wrong, 0
  br i1 %fine, label %common, label %early2
early2:
  call void @tell_cell(i64 %wrong, ptr %record, i64 %i, i64 %how, i32 %by, i1 true)
  ret i1 true
common:
  %ordered_else = phi i1 [ true, %landed ], [ %stored, %proxies ], [ %stored, %asynchronous ]
  %foreign = icmp ne i32 %by, %me
  %written_here = and i1 %ever, %foreign
  %maybe = and i1 %written_here, %ordered_else
  br i1 %maybe, label %writer, label %mine
writer:
  %clash = call i1 @unordered(ptr %record, i32 %by, i32 %written)
  br i1 %clash, label %race, label %mine
race:
  call void @tell_cell(i64 ${kind.RACE}, ptr %record, i64 %i, i64 %how, i32 %by, i1 true)
  ret i1 true
mine:
  %now = load i32, ptr @time
  br i1 %reads, label %read, label %write
read:
  call void @note_reader(ptr %record, ptr %cell, i32 %me, i32 %now)
  ret i1 false
write:
  %reader = call i32 @clashing_reader(ptr %record, ptr %cell, i32 %me)
  %was_read = icmp sge i32 %reader, 0
  br i1 %was_read, label %behind, label %keep
behind:
  %busy = call i1 @still_read(ptr %cell, i32 %reader)
  %kind = select i1 %busy, i64 ${kind.BUSY}, i64 ${kind.RACE}
  call void @tell_cell(i64 %kind, ptr %record, i64 %i, i64 %how, i32 %reader, i1 false)
  ret i1 true
keep: ; who reads it next is compared with this write: earlier readers do not matter any more
  %read_q = getelementptr i8, ptr %cell, i64 ${cell.read}
  %one_q = getelementptr i8, ptr %cell, i64 ${cell.one}
  %two_q = getelementptr i8, ptr %cell, i64 ${cell.two}
  store i32 %now, ptr %written_p
  store i32 %me, ptr %by_p
  store i32 %now, ptr %read_q
  store i32 %me, ptr %one_q
  store i32 %me, ptr %two_q
  store i32 %mark, ptr %part_p
  ret i1 false
}

; A reader of a cell, other than this thread, that a write would not be ordered after; else -1.
define internal i32 @clashing_reader(ptr %record, ptr %cell, i32 %me) {
entry:
  %read_p = getelementptr i8, ptr %cell, i64 ${cell.read}
  %one_p = getelementptr i8, ptr %cell, i64 ${cell.one}
  %two_p = getelementptr i8, ptr %cell, i64 ${cell.two}
  %when = load i32, ptr %read_p
  %one = load i32, ptr %one_p
  %two = load i32, ptr %two_p
  %when1 = call i32 @first_read(ptr %cell, i32 %when, i32 %one, i32 %two)
  %ever = icmp ne i32 %when, 0
  br i1 %ever, label %first, label %none
first:
  %own1 = icmp eq i32 %one, %me
  br i1 %own1, label %second, label %try1
try1:
  %clash1 = call i1 @unordered(ptr %record, i32 %one, i32 %when1)
  br i1 %clash1, label %yes1, label %second
yes1:
  ret i32 %one
second:
  %own2 = icmp eq i32 %two, %me
  br i1 %own2, label %none, label %try2
try2:
  %clash2 = call i1 @unordered(ptr %record, i32 %two, i32 %when)
  br i1 %clash2, label %yes2, label %none
yes2:
  ret i32 %two
none:
  ret i32 -1
}

; When the first of a cell's readers read it.
define internal i32 @first_read(ptr %cell, i32 %read, i32 %one, i32 %two) alwaysinline {
  %earlier_p = getelementptr i8, ptr %cell, i64 ${cell.earlier}
  %earlier = load i32, ptr %earlier_p
  %same = icmp eq i32 %one, %two
  %when = select i1 %same, i32 %read, i32 %earlier
  ret i32 %when
}

; Whether a reader of a cell reads it asynchronously.
define internal i1 @still_read(ptr %cell, i32 %reader) {
  %one_p = getelementptr i8, ptr %cell, i64 ${cell.one}
  %one = load i32, ptr %one_p
  %read_p = getelementptr i8, ptr %cell, i64 ${cell.read}
  %last = load i32, ptr %read_p
  %two_p = getelementptr i8, ptr %cell, i64 ${cell.two}
  %two = load i32, ptr %two_p
  %first = call i32 @first_read(ptr %cell, i32 %last, i32 %one, i32 %two)
  %is_one = icmp eq i32 %one, %reader
  %when = select i1 %is_one, i32 %first, i32 %last
  %busy = icmp eq i32 %when, ${FUTURE}
  ret i1 %busy
}

; Two readers are kept, so that any writer meets one that is not itself. One that is ordered before
; this thread makes room; where threads also wait for some of a block, those that lie far apart
; stay.
define internal void @note_reader(ptr %record, ptr %cell, i32 %me, i32 %now) {
entry:
  %read_p = getelementptr i8, ptr %cell, i64 ${cell.read}
  %one_p = getelementptr i8, ptr %cell, i64 ${cell.one}
  %two_p = getelementptr i8, ptr %cell, i64 ${cell.two}
  %when = load i32, ptr %read_p
  %one = load i32, ptr %one_p
  %two = load i32, ptr %two_p
  %alone1 = icmp eq i32 %one, %me
  %alone2 = icmp eq i32 %two, %me
  %alone = and i1 %alone1, %alone2
  %never = icmp eq i32 %when, 0
  %quick = or i1 %alone, %never
  br i1 %quick, label %only, label %look
only:
  store i32 %now, ptr %read_p
  store i32 %me, ptr %one_p
  store i32 %me, ptr %two_p
  ret void
look:
  %when1 = call i32 @first_read(ptr %cell, i32 %when, i32 %one, i32 %two)
  %live1 = call i1 @unordered(ptr %record, i32 %one, i32 %when1)
  %live2 = call i1 @unordered(ptr %record, i32 %two, i32 %when)
  %other1 = xor i1 %alone1, true
  %other2 = xor i1 %alone2, true
  %held1 = and i1 %live1, %other1
  %held2 = and i1 %live2, %other2
  %any = or i1 %held1, %held2
  br i1 %any, label %merge, label %only
merge:
  %same = icmp eq i32 %one, %two
  %room1 = xor i1 %held1, true
  %room2 = xor i1 %held2, true
  %room12 = or i1 %room1, %room2
  %room = or i1 %room12, %same
  br i1 %room, label %join, label %crowd
crowd:
  %hooks = load ptr, ptr @hooks
  %parts = icmp ne ptr %hooks, null
  %below1 = icmp ult i32 %me, %one
  %below2 = icmp ult i32 %me, %two
  %beside = icmp eq i1 %below1, %below2
  %wider = and i1 %parts, %beside
  br i1 %wider, label %join, label %out
join: ; one of the two stays: the only one that is held, or the one farther away
  %far = icmp ult i32 %one, %two
  %up = icmp ult i32 %me, %one
  %other_far = xor i1 %far, %up
  %first_stays = select i1 %room, i1 %held1, i1 %other_far
  %rest = select i1 %first_stays, i32 %one, i32 %two
  %rest_when = select i1 %first_stays, i32 %when1, i32 %when
  %earlier_p = getelementptr i8, ptr %cell, i64 ${cell.earlier}
  store i32 %rest_when, ptr %earlier_p
  store i32 %now, ptr %read_p
  store i32 %rest, ptr %one_p
  store i32 %me, ptr %two_p
  br label %out
out:
  ret void
}

define internal void @tell_cell(i64 %kind, ptr %record, i64 %i, i64 %how, i32 %other,
                                i1 %wrote) alwaysinline {
  %shift = call i64 @field(ptr %record, i64 ${sim_record.shift})
  %offset = shl i64 %i, %shift
  call void @tell(i64 %kind, ptr %record, i64 %offset, i64 %how, i32 %other, i1 %wrote)
  ret void
}

; The same for an address, by a kernel's own parts of the runtime.
define void @nw_sim_tell(i64 %kind, ptr %record, ptr %at) {
  %base = call i64 @field(ptr %record, i64 ${sim_record.base})
  %at_n = ptrtoint ptr %at to i64
  %offset = sub i64 %at_n, %base
  call void @tell(i64 %kind, ptr %record, i64 %offset, i64 0, i32 1, i1 false)
  ret void
}

define internal void @tell(i64 %kind, ptr %record, i64 %offset, i64 %how, i32 %other, i1 %wrote) {
  %launch = load ptr, ptr @launch
  %launch_n = ptrtoint ptr %launch to i64
  %static_n = call i64 @field(ptr %record, i64 ${sim_record.static})
  %static = inttoptr i64 %static_n to ptr
  %name = call i64 @field(ptr %static, i64 ${buffer.name})
  %shift = call i64 @field(ptr %static, i64 ${buffer.shift})
  %element = ashr i64 %offset, %shift
  %bytes = call i64 @field(ptr %static, i64 ${buffer.bytes})
  %elements = lshr i64 %bytes, %shift
  %thread = load i64, ptr @thread
  %block = load i64, ptr @block
  %threads = load i64, ptr @threads
  %counted = and i32 %other, ${NUMBER_BITS}
  %number = sub i32 %counted, 1
  %other64 = zext i32 %number to i64
  %other_thread = urem i64 %other64, %threads
  %other_block = udiv i64 %other64, %threads
  %write = and i64 %how, ${how.WRITES}
  %wrote64 = zext i1 %wrote to i64
  store i64 %kind, ptr getelementptr (i8, ptr @report, i64 ${report.kind})
  call void @set_field(ptr @report, i64 ${report.launch}, i64 %launch_n)
  call void @set_field(ptr @report, i64 ${report.subject}, i64 %name)
  call void @set_field(ptr @report, i64 ${report.element}, i64 %element)
  call void @set_field(ptr @report, i64 ${report.elements}, i64 %elements)
  call void @set_field(ptr @report, i64 ${report.thread}, i64 %thread)
  call void @set_field(ptr @report, i64 ${report.block}, i64 %block)
  call void @set_field(ptr @report, i64 ${report.other}, i64 %other_thread)
  call void @set_field(ptr @report, i64 ${report.other_block}, i64 %other_block)
  call void @set_field(ptr @report, i64 ${report.write}, i64 %write)
  call void @set_field(ptr @report, i64 ${report.other_write}, i64 %wrote64)
  ret void
}
