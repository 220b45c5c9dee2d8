; Matrix products of 128 threads in LLVM IR; see ``ir.loop.warpgroups`` for who holds what and
; where.
;
; What each thread deposited are addresses: ``slots`` is the first thread's, ``stride`` bytes lie
; between one thread's and the next. The product is made when it is begun; until it is waited for,
; its operands have a reader in the future, and its sums are not to be touched.

@part_a = internal global ptr null
@part_b = internal global ptr null
@part_c = internal global ptr null
@dirty = internal global ptr null ; by thread: did it write registers since its last fence?

; This thread's number, as an address to deposit.
define ptr @nw_group_me() {
  %me = call i64 @me()
  %p = inttoptr i64 %me to ptr
  ret ptr %p
}

define internal i64 @deposited(ptr %slots, i64 %stride, i64 %thread, i64 %offset) alwaysinline {
  %at = mul i64 %thread, %stride
  %both = add i64 %at, %offset
  %p = getelementptr i8, ptr %slots, i64 %both
  %value = load i64, ptr %p
  ret i64 %value
}

; For a while, the group's first thread knows and has seen what all of its threads have.
define internal void @agree(i64 %first) {
entry:
  %known = call ptr @known_row(i64 %first)
  %seen = call ptr @seen_row(i64 %first)
  %own_known = call ptr @bar_row0(i64 2)
  %own_seen = call ptr @bar_row0(i64 3)
  call void @copy_row(ptr %own_known, ptr %known)
  call void @copy_row(ptr %own_seen, ptr %seen)
  br label %next
next:
  %n = phi i64 [ 1, %entry ], [ %n1, %next ]
  %t = add i64 %first, %n
  %known_t = call ptr @known_row(i64 %t)
  %seen_t = call ptr @seen_row(i64 %t)
  call void @meet_least(ptr %known, ptr %known_t)
  call void @meet_least(ptr %seen, ptr %seen_t)
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, 128
  br i1 %more, label %next, label %out
out:
  ret void
}
define internal void @part(i64 %first) {
  %known = call ptr @known_row(i64 %first)
  %seen = call ptr @seen_row(i64 %first)
  %own_known = call ptr @bar_row0(i64 2)
  %own_seen = call ptr @bar_row0(i64 3)
  call void @copy_row(ptr %known, ptr %own_known)
  call void @copy_row(ptr %seen, ptr %own_seen)
  ret void
}
; Barrier 0 is the block's, which is a site: its rows are free.
define internal ptr @bar_row0(i64 %n) {
  %bar = call ptr @bar(i64 0)
  %row = call ptr @bar_row(ptr %bar, i64 %n)
  ret ptr %row
}
define internal void @meet_least(ptr %to, ptr %from) {
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
  %z = call <8 x i32> @llvm.umin.v8i32(<8 x i32> %x, <8 x i32> %y)
  store <8 x i32> %z, ptr %p, align 4
  %i1 = add i64 %i, 8
  br label %test
out:
  ret void
}

; Move the sums between the threads' registers and a matrix of 64 rows.
define internal void @sums(ptr %slots, i64 %stride, i64 %columns, i1 %gather) {
entry:
  %c = load ptr, ptr @part_c
  %words = lshr i64 %columns, 1
  br label %thread
thread:
  %t = phi i64 [ 0, %entry ], [ %t1, %thread_done ]
  %own_n = call i64 @deposited(ptr %slots, i64 %stride, i64 %t, i64 0)
  %own = inttoptr i64 %own_n to ptr
  %warp = lshr i64 %t, 5
  %lane = and i64 %t, 31
  %warp_row = shl i64 %warp, 4
  %lane_row = lshr i64 %lane, 2
  %quad = and i64 %lane, 3
  %quad_column = shl i64 %quad, 1
  br label %word
word:
  %e = phi i64 [ 0, %thread ], [ %e1, %word_done ]
  %pair = lshr i64 %e, 1
  %low = and i64 %pair, 1
  %half_row = shl i64 %low, 3
  %r1 = add i64 %warp_row, %lane_row
  %row = add i64 %r1, %half_row
  %fours = lshr i64 %e, 2
  %c1 = shl i64 %fours, 3
  %odd = and i64 %e, 1
  %c2 = add i64 %c1, %quad_column
  %column = add i64 %c2, %odd
  %line = mul i64 %row, %columns
  %at = add i64 %line, %column
  %matrix_p = getelementptr i32, ptr %c, i64 %at
  %own_p = getelementptr i32, ptr %own, i64 %e
  %from = select i1 %gather, ptr %own_p, ptr %matrix_p
  %to = select i1 %gather, ptr %matrix_p, ptr %own_p
  %x = load i32, ptr %from
  store i32 %x, ptr %to
  br label %word_done
word_done:
  %e1 = add i64 %e, 1
  %more_e = icmp ult i64 %e1, %words
  br i1 %more_e, label %word, label %thread_done
thread_done:
  %t1 = add i64 %t, 1
  %more_t = icmp ult i64 %t1, 128
  br i1 %more_t, label %thread, label %out
out:
  ret void
}

; c += a b, row by row, in order of k; products are rounded, then sums.
define internal void @multiply(i64 %rows, i64 %columns, i64 %depth, i1 %whole) {
entry:
  %a = load ptr, ptr @part_a
  %b = load ptr, ptr @part_b
  %c = load ptr, ptr @part_c
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i1, %row_done ]
  %a_at = mul i64 %i, %depth
  %a_row = getelementptr i32, ptr %a, i64 %a_at
  %c_at = mul i64 %i, %columns
  br label %stripe
stripe:
  %j = phi i64 [ 0, %row ], [ %j1, %stripe_done ]
  %cj = add i64 %c_at, %j
  %c_p = getelementptr i32, ptr %c, i64 %cj
  %old = load <8 x i32>, ptr %c_p, align 4
  br i1 %whole, label %ints, label %floats
ints:
  %ki = phi i64 [ 0, %stripe ], [ %ki1, %ints ]
  %sum_i = phi <8 x i32> [ %old, %stripe ], [ %sum_i1, %ints ]
  %ai_p = getelementptr i32, ptr %a_row, i64 %ki
  %ai = load i32, ptr %ai_p
  %ai_1 = insertelement <8 x i32> poison, i32 %ai, i64 0
  %ai_8 = shufflevector <8 x i32> %ai_1, <8 x i32> poison, <8 x i32> zeroinitializer
  %bi_line = mul i64 %ki, %columns
  %bi_at = add i64 %bi_line, %j
  %bi_p = getelementptr i32, ptr %b, i64 %bi_at
  %bi = load <8 x i32>, ptr %bi_p, align 4
  %abi = mul <8 x i32> %ai_8, %bi
  %sum_i1 = add <8 x i32> %sum_i, %abi
  %ki1 = add i64 %ki, 1
  %more_ki = icmp ult i64 %ki1, %depth
  br i1 %more_ki, label %ints, label %stripe_done
floats:
  %old_f = bitcast <8 x i32> %old to <8 x float>
  br label %each
each:
  %kf = phi i64 [ 0, %floats ], [ %kf1, %each ]
  %sum_f = phi <8 x float> [ %old_f, %floats ], [ %sum_f1, %each ]
  %af_p = getelementptr float, ptr %a_row, i64 %kf
  %af = load float, ptr %af_p
  %af_1 = insertelement <8 x float> poison, float %af, i64 0
  %af_8 = shufflevector <8 x float> %af_1, <8 x float> poison, <8 x i32> zeroinitializer
  %bf_line = mul i64 %kf, %columns
  %bf_at = add i64 %bf_line, %j
  %bf_p = getelementptr float, ptr %b, i64 %bf_at
  %bf = load <8 x float>, ptr %bf_p, align 4
  %abf = fmul <8 x float> %af_8, %bf
  %sum_f1 = fadd <8 x float> %sum_f, %abf
  %kf1 = add i64 %kf, 1
  %more_kf = icmp ult i64 %kf1, %depth
  br i1 %more_kf, label %each, label %made
made:
  %sum_w = bitcast <8 x float> %sum_f1 to <8 x i32>
  br label %stripe_done
stripe_done:
  %new = phi <8 x i32> [ %sum_i1, %ints ], [ %sum_w, %made ]
  store <8 x i32> %new, ptr %c_p, align 4
  %j1 = add i64 %j, 8
  %more_j = icmp ult i64 %j1, %columns
  br i1 %more_j, label %stripe, label %row_done
row_done:
  %i1 = add i64 %i, 1
  %more_i = icmp ult i64 %i1, %rows
  br i1 %more_i, label %row, label %out
out:
  ret void
}

; A left operand that is in the threads' registers, as pairs in words: each word of 16-bit elements
; is two neighbors of a row, and words take turns in rows eight apart, then in columns.
define internal void @held(ptr %slots, i64 %stride, ptr %product, ptr %b_record, i64 %first,
                           i64 %group) {
entry:
  %a = load ptr, ptr @part_a
  %depth = call i64 @get(ptr %product, i64 ${product.depth})
  %kind = call i64 @get(ptr %product, i64 ${product.kind})
  %count = lshr i64 %depth, 1
  %bytes = shl i64 %count, 1
  br label %thread
thread:
  %t = phi i64 [ 0, %entry ], [ %t1, %thread_done ]
  %own_n = call i64 @deposited(ptr %slots, i64 %stride, i64 %t, i64 8)
  %own = inttoptr i64 %own_n to ptr
  %read = call ptr @new_read(i64 %first, i64 ${read.HELD}, i64 %group, ptr %b_record, ptr %own,
                             i64 %bytes)
  %warp = lshr i64 %t, 5
  %lane = and i64 %t, 31
  %warp_row = shl i64 %warp, 4
  %lane_row = lshr i64 %lane, 2
  %quad = and i64 %lane, 3
  %quad_column = shl i64 %quad, 1
  br label %one
one:
  %e = phi i64 [ 0, %thread ], [ %e1, %one ]
  %pair = lshr i64 %e, 1
  %low = and i64 %pair, 1
  %half_row = shl i64 %low, 3
  %r1 = add i64 %warp_row, %lane_row
  %row = add i64 %r1, %half_row
  %fours = lshr i64 %e, 2
  %c1 = shl i64 %fours, 3
  %odd = and i64 %e, 1
  %c2 = add i64 %c1, %quad_column
  %column = add i64 %c2, %odd
  %line = mul i64 %row, %depth
  %at = add i64 %line, %column
  %to = getelementptr i32, ptr %a, i64 %at
  %own_p = getelementptr i16, ptr %own, i64 %e
  %x = call i32 @element(ptr %own_p, i64 %kind, ptr null)
  store i32 %x, ptr %to
  %e1 = add i64 %e, 1
  %more_e = icmp ult i64 %e1, %count
  br i1 %more_e, label %one, label %thread_done
thread_done:
  %t1 = add i64 %t, 1
  %more_t = icmp ult i64 %t1, 128
  br i1 %more_t, label %thread, label %out
out:
  ret void
}

; Slots: sums, a, b, the records of a and b, the thread's number. An a in registers is where each
; thread has its own, and its record is that of b.
define void @nw_group_multiply(ptr %slots, i64 %stride, ptr %product) {
entry:
  %first = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 40)
  call void @nw_sim_turn_to(i64 %first)
  %a_n = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 8)
  %b_n = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 16)
  %a = inttoptr i64 %a_n to ptr
  %b = inttoptr i64 %b_n to ptr
  %a_record_n = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 24)
  %b_record_n = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 32)
  %a_record = inttoptr i64 %a_record_n to ptr
  %b_record = inttoptr i64 %b_record_n to ptr
  %columns = call i64 @get(ptr %product, i64 ${product.columns})
  %groups = load ptr, ptr @open_groups
  %threads = call i64 @threads()
  %number = add i64 %threads, %first
  %group_p = getelementptr i64, ptr %groups, i64 %number
  %group = load i64, ptr %group_p
  %words = lshr i64 %columns, 1
  %bytes = shl i64 %words, 2
  %dirty = load ptr, ptr @dirty
  %held_n = call i64 @get(ptr %product, i64 ${product.held})
  %is_held = icmp ne i64 %held_n, 0
  br label %each
each: ; the same operands in all threads, and registers that are seen
  %n = phi i64 [ 0, %entry ], [ %n1, %noted ]
  %a_t = call i64 @deposited(ptr %slots, i64 %stride, i64 %n, i64 8)
  %b_t = call i64 @deposited(ptr %slots, i64 %stride, i64 %n, i64 16)
  %a_equal = icmp eq i64 %a_t, %a_n
  %a_same = or i1 %a_equal, %is_held
  %b_same = icmp eq i64 %b_t, %b_n
  %same = and i1 %a_same, %b_same
  %t = add i64 %first, %n
  br i1 %same, label %clean, label %differs
differs:
  call void @nw_sim_turn_to(i64 %t)
  call void @nw_sim_tell(i64 ${kind.DIFFERS}, ptr %a_record, ptr %a)
  ret void
clean:
  %dirty_p = getelementptr i64, ptr %dirty, i64 %t
  %is_dirty_n = load i64, ptr %dirty_p
  %is_dirty = icmp ne i64 %is_dirty_n, 0
  br i1 %is_dirty, label %unseen, label %note
unseen:
  call void @nw_sim_turn_to(i64 %t)
  call void @nw_sim_tell(i64 ${kind.UNFENCED_SUMS}, ptr %a_record, ptr %a)
  ret void
note:
  %sums_n = call i64 @deposited(ptr %slots, i64 %stride, i64 %n, i64 0)
  %sums_p = inttoptr i64 %sums_n to ptr
  %read = call ptr @new_read(i64 %first, i64 ${read.SUMS}, i64 %group, ptr %a_record, ptr %sums_p,
                             i64 %bytes)
  br label %noted
noted:
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, 128
  br i1 %more, label %each, label %operands
operands:
  %depth = call i64 @get(ptr %product, i64 ${product.depth})
  %to_a = load ptr, ptr @part_a
  %to_b = load ptr, ptr @part_b
  %layout_a = getelementptr i8, ptr %product, i64 ${product.a}
  %layout_b = getelementptr i8, ptr %product, i64 ${product.b}
  call void @agree(i64 %first)
  br i1 %is_held, label %registers, label %shared
registers:
  call void @held(ptr %slots, i64 %stride, ptr %product, ptr %b_record, i64 %first, i64 %group)
  br label %next
shared:
  %bad_a = call i1 @operand(ptr %to_a, i64 %depth, i64 1, i64 64, ptr %product, ptr %layout_a,
      ptr %a_record, ptr %a, i64 %first, i64 %group)
  br i1 %bad_a, label %back, label %next
next:
  %bad_b = call i1 @operand(ptr %to_b, i64 1, i64 %columns, i64 %columns, ptr %product,
                            ptr %layout_b,
      ptr %b_record, ptr %b, i64 %first, i64 %group)
  br label %back
back:
  %bad = phi i1 [ true, %shared ], [ %bad_b, %next ]
  call void @part(i64 %first)
  br i1 %bad, label %out, label %make
make:
  %whole_n = call i64 @get(ptr %product, i64 ${product.whole})
  %whole = icmp ne i64 %whole_n, 0
  call void @sums(ptr %slots, i64 %stride, i64 %columns, i1 true)
  call void @multiply(i64 64, i64 %columns, i64 %depth, i1 %whole)
  call void @sums(ptr %slots, i64 %stride, i64 %columns, i1 false)
  br label %out
out:
  ret void
}

; Slot: the thread's number.
define void @nw_group_commit(ptr %slots, i64 %stride) {
  %first = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 0)
  %groups = load ptr, ptr @open_groups
  %threads = call i64 @threads()
  %number = add i64 %threads, %first
  %group_p = getelementptr i64, ptr %groups, i64 %number
  %group = load i64, ptr %group_p
  %next = add i64 %group, 1
  store i64 %next, ptr %group_p
  ret void
}

define void @nw_group_wait(ptr %slots, i64 %stride, i64 %left) {
entry:
  %first = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 0)
  call void @nw_sim_turn_to(i64 %first)
  %groups = load ptr, ptr @open_groups
  %threads = call i64 @threads()
  %number = add i64 %threads, %first
  %group_p = getelementptr i64, ptr %groups, i64 %number
  %group = load i64, ptr %group_p
  %over = sub i64 %group, %left
  call void @end_group(i64 %first, i1 false, i64 %over)
  %now = call i32 @tick()
  br label %each
each: ; all threads of the group know that its first has read
  %n = phi i64 [ 0, %entry ], [ %n1, %each ]
  %t = add i64 %first, %n
  %row = call ptr @known_row(i64 %t)
  %p = getelementptr i32, ptr %row, i64 %first
  store i32 %now, ptr %p
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, 128
  br i1 %more, label %each, label %out
out:
  ret void
}

define void @nw_group_fence(ptr %slots, i64 %stride) {
  %first = call i64 @deposited(ptr %slots, i64 %stride, i64 0, i64 0)
  %dirty = load ptr, ptr @dirty
  %p = getelementptr i64, ptr %dirty, i64 %first
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 1024, i1 false)
  ret void
}

; This thread touches registers that sums may be in.
define i1 @nw_group_touch(ptr %at, i64 %size, i1 %writes) {
entry:
  %me = call i64 @me()
  %dirty = load ptr, ptr @dirty
  %dirty_p = getelementptr i64, ptr %dirty, i64 %me
  %old = load i64, ptr %dirty_p
  %mark = zext i1 %writes to i64
  %new = or i64 %old, %mark
  store i64 %new, ptr %dirty_p
  %at_n = ptrtoint ptr %at to i64
  %end = add i64 %at_n, %size
  %reads = load ptr, ptr @reads
  %count = load i64, ptr @read_count
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %fine
look:
  %place = mul i64 %i, ${sizeof.async_read}
  %read = getelementptr i8, ptr %reads, i64 %place
  %kind = call i64 @get(ptr %read, i64 ${async_read.kind})
  %from = call i64 @get(ptr %read, i64 ${async_read.at})
  %bytes = call i64 @get(ptr %read, i64 ${async_read.size})
  %to = add i64 %from, %bytes
  %is_sums = icmp eq i64 %kind, ${read.SUMS}
  %is_held = icmp eq i64 %kind, ${read.HELD}
  %is_loaded = icmp eq i64 %kind, ${read.LOADED}
  %changed = and i1 %is_held, %writes
  %whole = or i1 %is_sums, %is_loaded
  %watched = or i1 %whole, %changed
  %before = icmp ult i64 %at_n, %to
  %behind = icmp ult i64 %from, %end
  %meets = and i1 %before, %behind
  %bad = and i1 %meets, %watched
  br i1 %bad, label %tell, label %next
next:
  %i1 = add i64 %i, 1
  br label %test
tell:
  %a_record = call ptr @get_ptr(ptr %read, i64 ${async_read.record})
  %a_base = call ptr @get_ptr(ptr %a_record, i64 ${sim_record.base})
  %what = select i1 %is_held, i64 ${kind.HELD}, i64 ${kind.SUMS}
  call void @nw_sim_tell(i64 %what, ptr %a_record, ptr %a_base)
  ret i1 true
fine:
  ret i1 false
}

define internal void @open_products() {
  %a = call ptr @nw_scratch(i64 16384)
  %b = call ptr @nw_scratch(i64 65536)
  %c = call ptr @nw_scratch(i64 131072)
  store ptr %a, ptr @part_a
  store ptr %b, ptr @part_b
  store ptr %c, ptr @part_c
  %threads = call i64 @threads()
  %bytes = shl i64 %threads, 3
  %dirty = call ptr @nw_scratch(i64 %bytes)
  store ptr %dirty, ptr @dirty
  ret void
}
define internal void @begin_products() {
  %threads = call i64 @threads()
  %bytes = shl i64 %threads, 3
  %dirty = load ptr, ptr @dirty
  call void @llvm.memset.p0.i64(ptr %dirty, i8 0, i64 %bytes, i1 false)
  ret void
}
