; What is under way in a block, in LLVM IR, and faults of its barriers. Things land when no thread
; can go on, in any order.

define internal ptr @new_flight() {
entry:
  %count = load i64, ptr @flight_count
  %room = load i64, ptr @flight_room
  %full = icmp eq i64 %count, %room
  br i1 %full, label %grow, label %take
grow:
  %old = load ptr, ptr @flights
  %double = shl i64 %room, 1
  %wanted = or i64 %double, 64
  %bytes = mul i64 %wanted, ${sizeof.flight}
  %new = call ptr @realloc(ptr %old, i64 %bytes)
  store ptr %new, ptr @flights
  store i64 %wanted, ptr @flight_room
  br label %take
take:
  %more = add i64 %count, 1
  store i64 %more, ptr @flight_count
  %flights = load ptr, ptr @flights
  %at = mul i64 %count, ${sizeof.flight}
  %flight = getelementptr i8, ptr %flights, i64 %at
  %me = call i64 @me()
  call void @set(ptr %flight, i64 ${flight.thread}, i64 %me)
  ret ptr %flight
}

; This thread arrives as soon as the copies that it has begun are done.
define i1 @nw_phase_arrive_copies(ptr %record, ptr %at) {
entry:
  %index = call i64 @mbarrier(ptr %record, ptr %at)
  %bad = icmp slt i64 %index, 0
  br i1 %bad, label %fault, label %note
note:
  call void @nw_sim_commit_async()
  %group = call i64 @nw_sim_group()
  %flight = call ptr @new_flight()
  call void @set(ptr %flight, i64 ${flight.land}, i64 ptrtoint (ptr @land_copies to i64))
  call void @set(ptr %flight, i64 ${flight.bar}, i64 %index)
  call void @set(ptr %flight, i64 ${flight.group}, i64 %group)
  ret i1 false
fault:
  ret i1 true
}

define internal void @land_copies(ptr %flight) {
  %thread = call i64 @get(ptr %flight, i64 ${flight.thread})
  %index = call i64 @get(ptr %flight, i64 ${flight.bar})
  %group = call i64 @get(ptr %flight, i64 ${flight.group})
  call void @nw_sim_turn_to(i64 %thread)
  call void @nw_sim_land(i64 %group)
  %wrong = call i1 @arrive(i64 %index, i64 0)
  ret void
}

; One of what is under way arrives, any of them. False if there is none.
define internal i1 @progress() {
entry:
  %count = load i64, ptr @flight_count
  %none = icmp eq i64 %count, 0
  br i1 %none, label %no, label %pick
pick:
  %bits = call i64 @nw_sim_draw()
  %which = urem i64 %bits, %count
  %less = sub i64 %count, 1
  %flights = load ptr, ptr @flights
  %at = mul i64 %which, ${sizeof.flight}
  %flight = getelementptr i8, ptr %flights, i64 %at
  %last_at = mul i64 %less, ${sizeof.flight}
  %last = getelementptr i8, ptr %flights, i64 %last_at
  %own = alloca [${sizeof.flight} x i8], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %flight, i64 ${sizeof.flight}, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %flight, ptr %last, i64 ${sizeof.flight}, i1 false)
  store i64 %less, ptr @flight_count
  %land = call ptr @get_ptr(ptr %own, i64 ${flight.land})
  call void %land(ptr %own)
  ret i1 true
no:
  ret i1 false
}

; Faults.

define internal void @tell_bar(i64 %kind, i64 %index, i64 %thread) {
  %report = call ptr @nw_sim_report()
  %bar = call ptr @bar(i64 %index)
  %launch_p = call ptr @of_core(i64 ${core.launch})
  %launch = load i64, ptr %launch_p
  %block_p = call ptr @of_core(i64 ${core.block})
  %block = load i64, ptr %block_p
  call void @set(ptr %report, i64 ${report.kind}, i64 %kind)
  call void @set(ptr %report, i64 ${report.launch}, i64 %launch)
  call void @set(ptr %report, i64 ${report.thread}, i64 %thread)
  call void @set(ptr %report, i64 ${report.block}, i64 %block)
  %name = call i64 @get(ptr %bar, i64 ${bar.name})
  %element = call i64 @get(ptr %bar, i64 ${bar.element})
  %phase = call i64 @get(ptr %bar, i64 ${bar.phase})
  %expected = call i64 @get(ptr %bar, i64 ${bar.expected})
  %pending = call i64 @get(ptr %bar, i64 ${bar.pending})
  %bytes = call i64 @get(ptr %bar, i64 ${bar.bytes})
  %named = icmp ult i64 %index, ${NAMED_BARS}
  %is_named = zext i1 %named to i64
  call void @set(ptr %report, i64 ${report.subject}, i64 %name)
  call void @set(ptr %report, i64 ${report.element}, i64 %element)
  call void @set(ptr %report, i64 ${report.phase}, i64 %phase)
  call void @set(ptr %report, i64 ${report.expected}, i64 %expected)
  call void @set(ptr %report, i64 ${report.pending}, i64 %pending)
  call void @set(ptr %report, i64 ${report.missing}, i64 %bytes)
  call void @set(ptr %report, i64 ${report.named}, i64 %is_named)
  ret void
}

; No thread can go on: tell of the first that waits for a phase, and how many do.
define internal void @stuck() {
entry:
  %threads = call i64 @threads()
  br label %seek
seek:
  %t = phi i64 [ 0, %entry ], [ %t1, %pass ]
  %state = call i32 @state_of(i64 %t)
  %blocked = icmp uge i32 %state, ${state.BLOCKED}
  br i1 %blocked, label %found, label %pass
pass:
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %threads
  br i1 %more, label %seek, label %no
found:
  %block_p = call ptr @of_core(i64 ${core.block})
  %block = load i64, ptr %block_p
  %number = and i32 %state, ${NUMBER_BITS}
  %index = zext i32 %number to i64
  call void @tell_bar(i64 ${kind.DEADLOCK}, i64 %index, i64 %t)
  br label %next
next:
  %u = phi i64 [ 0, %found ], [ %u1, %next ]
  %count = phi i64 [ 0, %found ], [ %count1, %next ]
  %other = phi i64 [ -1, %found ], [ %other1, %next ]
  %there = call i32 @state_of(i64 %u)
  %same = icmp eq i32 %there, %state
  %waits = icmp uge i32 %there, ${state.BLOCKED}
  %elsewhere = icmp ne i32 %there, %state
  %apart = and i1 %waits, %elsewhere
  %first = icmp slt i64 %other, 0
  %take = and i1 %apart, %first
  %other1 = select i1 %take, i64 %u, i64 %other
  %one = zext i1 %same to i64
  %count1 = add i64 %count, %one
  %u1 = add i64 %u, 1
  %more_u = icmp ult i64 %u1, %threads
  br i1 %more_u, label %next, label %tell
tell:
  %report = call ptr @nw_sim_report()
  call void @set(ptr %report, i64 ${report.waiting}, i64 %count1)
  %alone = icmp slt i64 %other1, 0
  br i1 %alone, label %yes, label %both
both:
  %state2 = call i32 @state_of(i64 %other1)
  %number2 = and i32 %state2, ${NUMBER_BITS}
  %index2 = zext i32 %number2 to i64
  %bar2 = call ptr @bar(i64 %index2)
  %name2 = call i64 @get(ptr %bar2, i64 ${bar.name})
  %element2 = call i64 @get(ptr %bar2, i64 ${bar.element})
  call void @set(ptr %report, i64 ${report.other}, i64 %other1)
  call void @set(ptr %report, i64 ${report.other_block}, i64 %block)
  call void @set(ptr %report, i64 ${report.other_site}, i64 %name2)
  call void @set(ptr %report, i64 ${report.other_element}, i64 %element2)
  br label %yes
yes:
  ret void
no:
  ret void
}
