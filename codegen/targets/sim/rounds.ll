; The threads of a block in LLVM IR: they are resumed in rounds, until all have ended.
;
; Every thread that is ready is resumed once, in an order drawn anew for each round. When all of a
; warp, or of the block, wait at the same place, what they are there for is done, and they go on.
; Where nothing can go on although threads wait, they diverged.

; Threads that never wait: each runs from its beginning to its end.
define internal void @run_threads(ptr %launch) {
entry:
  %threads = load i64, ptr @threads
  %order = call { i64, i64 } @order(i64 %threads)
  %first = extractvalue { i64, i64 } %order, 0
  %step = extractvalue { i64, i64 } %order, 1
  %body_n = call i64 @field(ptr %launch, i64 ${launch.body})
  %body = inttoptr i64 %body_n to ptr
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %t = phi i64 [ %first, %entry ], [ %after, %next ]
  call void @become(ptr %launch, i64 %t)
  %none = call ptr %body(ptr @sim)
  %failed = call i1 @nw_sim_failed()
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %threads
  %after = call i64 @after(i64 %t, i64 %step, i64 %threads)
  %stop = xor i1 %failed, true
  %go = and i1 %more, %stop
  br i1 %go, label %next, label %out
out:
  ret void
}

; Every thread, up to the first place where it waits.
define internal void @start_threads(ptr %launch) {
entry:
  %threads = load i64, ptr @threads
  %order = call { i64, i64 } @order(i64 %threads)
  %first = extractvalue { i64, i64 } %order, 0
  %step = extractvalue { i64, i64 } %order, 1
  %body_n = call i64 @field(ptr %launch, i64 ${launch.body})
  %body = inttoptr i64 %body_n to ptr
  %handles = load ptr, ptr @handles
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %t = phi i64 [ %first, %entry ], [ %after, %next ]
  call void @become(ptr %launch, i64 %t)
  %handle = call ptr %body(ptr @sim)
  %handle_p = getelementptr ptr, ptr %handles, i64 %t
  store ptr %handle, ptr %handle_p
  %failed = call i1 @nw_sim_failed()
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %threads
  %after = call i64 @after(i64 %t, i64 %step, i64 %threads)
  %stop = xor i1 %failed, true
  %go = and i1 %more, %stop
  br i1 %go, label %next, label %out
out:
  ret void
}

define internal void @run_rounds() {
entry:
  %failed = call i1 @nw_sim_failed()
  br i1 %failed, label %out, label %look
look:
  %some = call i1 @resolve()
  br i1 %some, label %round, label %out
round:
  call void @resume_ready()
  br label %entry2
entry2:
  %bad = call i1 @nw_sim_failed()
  br i1 %bad, label %out, label %look
out:
  ret void
}

define internal void @resume_ready() {
entry:
  %threads = load i64, ptr @threads
  %order = call { i64, i64 } @order(i64 %threads)
  %first = extractvalue { i64, i64 } %order, 0
  %step = extractvalue { i64, i64 } %order, 1
  %state = load ptr, ptr @state
  %handles = load ptr, ptr @handles
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %done ]
  %t = phi i64 [ %first, %entry ], [ %after, %done ]
  %state_p = getelementptr i32, ptr %state, i64 %t
  %is = load i32, ptr %state_p
  %ready = icmp eq i32 %is, ${state.READY}
  br i1 %ready, label %run, label %done
run:
  call void @turn_to(i64 %t)
  %handle_p = getelementptr ptr, ptr %handles, i64 %t
  %handle = load ptr, ptr %handle_p
  call void @llvm.coro.resume(ptr %handle)
  br label %done
done:
  %failed = call i1 @nw_sim_failed()
  %good = xor i1 %failed, true
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %threads
  %sum = add i64 %t, %step
  %over = icmp uge i64 %sum, %threads
  %less = sub i64 %sum, %threads
  %after = select i1 %over, i64 %less, i64 %sum
  %go = and i1 %more, %good
  br i1 %go, label %next, label %out
out:
  ret void
}

; The state that threads first .. last - 1 share, or -1 where they differ.
define internal i32 @common(i64 %first, i64 %last) {
entry:
  %state = load ptr, ptr @state
  %first_p = getelementptr i32, ptr %state, i64 %first
  %is = load i32, ptr %first_p
  br label %next
next:
  %t = phi i64 [ %first, %entry ], [ %t1, %next ]
  %p = getelementptr i32, ptr %state, i64 %t
  %other = load i32, ptr %p
  %same = icmp eq i32 %is, %other
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %last
  %go = and i1 %same, %more
  br i1 %go, label %next, label %out
out:
  %answer = select i1 %same, i32 %is, i32 -1
  ret i32 %answer
}

define internal ptr @site(i32 %state) {
  %launch = load ptr, ptr @launch
  %sites_n = call i64 @field(ptr %launch, i64 ${launch.sites})
  %sites = inttoptr i64 %sites_n to ptr
  %number32 = sub i32 %state, ${state.FIRST_SITE}
  %number = zext i32 %number32 to i64
  %site = getelementptr [${sizeof.site} x i8], ptr %sites, i64 %number
  ret ptr %site
}

; Threads first .. last - 1 are all at a site: do what they are there for, and let them go on.
define internal void @perform(i32 %at, i64 %first, i64 %last) {
entry:
  %site = call ptr @site(i32 %at)
  %scope = call i64 @field(ptr %site, i64 ${site.scope})
  %action_n = call i64 @field(ptr %site, i64 ${site.action})
  %action = inttoptr i64 %action_n to ptr
  %acts = icmp ne i64 %action_n, 0
  br i1 %acts, label %act, label %order
act:
  %bytes = load i64, ptr @slot_bytes
  %base = load ptr, ptr @deposits
  %offset = mul i64 %first, %bytes
  %slots = getelementptr i8, ptr %base, i64 %offset
  %count = sub i64 %last, %first
  call void %action(ptr %slots, i64 %bytes, i64 %count)
  br label %order
order:
  switch i64 %scope, label %release [ i64 ${scope.WARP_ORDERED}, label %warp
      i64 ${scope.BLOCK_ORDERED}, label %block i64 ${scope.CLUSTER_ORDERED}, label %cluster ]
warp:
  %number = lshr i64 %first, 5
  call void @order_warp(i64 %number)
  call void @threads_met(i64 %first, i64 %last)
  br label %release
block:
  call void @order_one_block(i64 %first)
  call void @threads_met(i64 %first, i64 %last)
  br label %release
cluster:
  call void @order_block()
  call void @threads_met(i64 %first, i64 %last)
  br label %release
release:
  %state = load ptr, ptr @state
  br label %next
next:
  %t = phi i64 [ %first, %release ], [ %t1, %next ]
  %p = getelementptr i32, ptr %state, i64 %t
  store i32 ${state.READY}, ptr %p
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %last
  br i1 %more, label %next, label %out
out:
  ret void
}

; True if any thread is ready, once everything that can happen has.
define internal i1 @resolve() {
entry:
  %threads = load i64, ptr @threads
  %all = call i32 @common(i64 0, i64 %threads)
  switch i32 %all, label %meet [ i32 ${state.DONE}, label %no
      i32 ${state.READY}, label %yes i32 -1, label %apart ]
meet:
  %blocked = icmp uge i32 %all, ${state.BLOCKED}
  br i1 %blocked, label %apart, label %at_site
at_site:
  %site = call ptr @site(i32 %all)
  %scope = call i64 @field(ptr %site, i64 ${site.scope})
  %wide = and i64 %scope, ${scope.CLUSTER}
  %is_cluster = icmp ne i64 %wide, 0
  br i1 %is_cluster, label %together, label %apart
together:
  call void @perform(i32 %all, i64 0, i64 %threads)
  br label %yes
apart:
  %block_goes = call i1 @resolve_blocks()
  %warp_goes = call i1 @resolve_warps()
  %some = or i1 %block_goes, %warp_goes
  br i1 %some, label %yes, label %still
still: ; what is under way, or a barrier that is not a site, may let some go on
  %progress = call ptr @hook(i64 ${hooks.progress})
  %plain = icmp eq ptr %progress, null
  br i1 %plain, label %stuck, label %help
help:
  %helped = call i1 %progress()
  br i1 %helped, label %yes, label %stuck
stuck:
  call void @diverged()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Blocks whose threads all wait for each other.
define internal i1 @resolve_blocks() {
entry:
  %threads = load i64, ptr @threads
  %each = call i64 @block_threads()
  br label %next
next:
  %first = phi i64 [ 0, %entry ], [ %last, %go ]
  %any = phi i1 [ false, %entry ], [ %any1, %go ]
  %last = add i64 %first, %each
  %is = call i32 @common(i64 %first, i64 %last)
  %from_sites = sub i32 %is, ${state.FIRST_SITE}
  %waits = icmp ult i32 %from_sites, ${state.SITES}
  br i1 %waits, label %at_site, label %go
at_site:
  %site = call ptr @site(i32 %is)
  %scope = call i64 @field(ptr %site, i64 ${site.scope})
  %wide = and i64 %scope, ${scope.BLOCK}
  %is_block = icmp ne i64 %wide, 0
  br i1 %is_block, label %perform, label %go
perform:
  call void @perform(i32 %is, i64 %first, i64 %last)
  br label %go
go:
  %now = phi i1 [ false, %next ], [ false, %at_site ], [ true, %perform ]
  %any1 = or i1 %any, %now
  %more = icmp ult i64 %last, %threads
  br i1 %more, label %next, label %out
out:
  ret i1 %any1
}

define internal i1 @resolve_warps() {
entry:
  %threads = load i64, ptr @threads
  %warps = load i64, ptr @warps
  br label %next
next:
  %w = phi i64 [ 0, %entry ], [ %w1, %go ]
  %any = phi i1 [ false, %entry ], [ %any1, %go ]
  %first = shl i64 %w, 5
  %end = add i64 %first, 32
  %last = call i64 @llvm.umin.i64(i64 %end, i64 %threads)
  %is = call i32 @common(i64 %first, i64 %last)
  switch i32 %is, label %meet [ i32 ${state.DONE}, label %no
      i32 ${state.READY}, label %yes i32 -1, label %mixed ]
mixed: ; it may also be that all ended, or wait at a barrier with a number
  %ready = call i1 @any_ready(i64 %first, i64 %last)
  br label %go
meet:
  %blocked = icmp uge i32 %is, ${state.BLOCKED}
  br i1 %blocked, label %no, label %at_site
at_site:
  %site = call ptr @site(i32 %is)
  %scope = call i64 @field(ptr %site, i64 ${site.scope})
  %wide = and i64 %scope, ${scope.WIDE}
  %is_block = icmp ne i64 %wide, 0
  br i1 %is_block, label %no, label %narrow
narrow:
  %four = and i64 %scope, ${scope.GROUP}
  %is_group = icmp ne i64 %four, 0
  br i1 %is_group, label %group, label %perform
group: ; four warps, of which the first has a number that is a multiple of four
  %place = and i64 %first, 127
  %starts = icmp eq i64 %place, 0
  %group_end = add i64 %first, 128
  %whole = icmp ule i64 %group_end, %threads
  %possible = and i1 %starts, %whole
  br i1 %possible, label %four_warps, label %no
four_warps:
  %others = call i32 @common(i64 %first, i64 %group_end)
  %all_there = icmp eq i32 %others, %is
  br i1 %all_there, label %perform, label %no
perform:
  %until = phi i64 [ %last, %narrow ], [ %group_end, %four_warps ]
  call void @perform(i32 %is, i64 %first, i64 %until)
  br label %yes
yes:
  br label %go
no:
  br label %go
go:
  %now = phi i1 [ true, %yes ], [ false, %no ], [ %ready, %mixed ]
  %any1 = or i1 %any, %now
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %warps
  br i1 %more, label %next, label %out
out:
  ret i1 %any1
}

define internal i1 @any_ready(i64 %first, i64 %last) {
entry:
  %state = load ptr, ptr @state
  br label %next
next:
  %t = phi i64 [ %first, %entry ], [ %t1, %next ]
  %p = getelementptr i32, ptr %state, i64 %t
  %is = load i32, ptr %p
  %ready = icmp eq i32 %is, ${state.READY}
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %last
  %quiet = xor i1 %ready, true
  %go = and i1 %more, %quiet
  br i1 %go, label %next, label %out
out:
  ret i1 %ready
}

; Some wait where others never come: name the first that waits and the first that is elsewhere.
define internal void @diverged() {
entry:
  %threads = load i64, ptr @threads
  %state = load ptr, ptr @state
  br label %seek
seek:
  %t = phi i64 [ 0, %entry ], [ %t1, %pass ]
  %p = getelementptr i32, ptr %state, i64 %t
  %is = load i32, ptr %p
  %from_sites = sub i32 %is, ${state.FIRST_SITE}
  %waits = icmp ult i32 %from_sites, ${state.SITES}
  br i1 %waits, label %found, label %pass
pass:
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %seek, label %deadlock
deadlock: ; nobody who is at a site waits for more than those who wait elsewhere
  call void @run_hook(i64 ${hooks.stuck})
  ret void
found:
  %site = call ptr @site(i32 %is)
  %scope = call i64 @field(ptr %site, i64 ${site.scope})
  %wide = and i64 %scope, ${scope.BLOCK}
  %is_block = icmp ne i64 %wide, 0
  %warp_first = and i64 %t, -32
  %four = and i64 %scope, ${scope.GROUP}
  %is_group = icmp ne i64 %four, 0
  %group_first = and i64 %t, -128
  %narrow_first = select i1 %is_group, i64 %group_first, i64 %warp_first
  %each = call i64 @block_threads()
  %block_number = udiv i64 %t, %each
  %block_first = mul i64 %block_number, %each
  %in_block = select i1 %is_block, i64 %block_first, i64 %narrow_first
  %cluster_bit = and i64 %scope, ${scope.CLUSTER}
  %is_cluster = icmp ne i64 %cluster_bit, 0
  %first = select i1 %is_cluster, i64 0, i64 %in_block
  br label %other
other: ; there may be too few threads for a group
  %u = phi i64 [ %first, %found ], [ %u1, %present ]
  %there_is = icmp ult i64 %u, %threads
  br i1 %there_is, label %present, label %tell
present:
  %q = getelementptr i32, ptr %state, i64 %u
  %there = load i32, ptr %q
  %differs = icmp ne i32 %is, %there
  %u1 = add i64 %u, 1
  br i1 %differs, label %tell, label %other
tell:
  %state_there = phi i32 [ 0, %other ], [ %there, %present ]
  %blocked = icmp uge i32 %state_there, ${state.BLOCKED}
  br i1 %blocked, label %deadlock, label %apart
apart:
  %name = call i64 @field(ptr %site, i64 ${site.name})
  %block = load i64, ptr @block
  store i64 ${kind.DIVERGED}, ptr getelementptr (i8, ptr @report, i64 ${report.kind})
  %launch = load ptr, ptr @launch
  %launch_n = ptrtoint ptr %launch to i64
  call void @set_field(ptr @report, i64 ${report.launch}, i64 %launch_n)
  call void @set_field(ptr @report, i64 ${report.subject}, i64 %name)
  call void @set_field(ptr @report, i64 ${report.thread}, i64 %t)
  call void @set_field(ptr @report, i64 ${report.block}, i64 %block)
  call void @set_field(ptr @report, i64 ${report.other}, i64 %u)
  call void @set_field(ptr @report, i64 ${report.other_block}, i64 %block)
  %ended = icmp ult i32 %state_there, ${state.FIRST_SITE}
  br i1 %ended, label %out, label %elsewhere
elsewhere:
  %site2 = call ptr @site(i32 %state_there)
  %name2 = call i64 @field(ptr %site2, i64 ${site.name})
  call void @set_field(ptr @report, i64 ${report.other_site}, i64 %name2)
  br label %out
out:
  ret void
}
