; Workers of an instance's pool, which are joined when the instance is destroyed. A child of fork
; has none to join.
declare i32 @pthread_join(i64, ptr)

define internal ptr @nw_record() {
  ret ptr null
}

define internal void @nw_lend(ptr %record) {
  ret void
}

define internal void @worker_created(ptr %pool, i32 %index, i64 %id) {
  %instance = getelementptr i8, ptr %pool, i64 ${sizeof.pool}
  %handles_p = getelementptr i8, ptr %instance, i64 ${instance.handles}
  %handle_p = getelementptr i64, ptr %handles_p, i32 %index
  store i64 %id, ptr %handle_p
  ret void
}

define internal void @worker_begins(ptr %pool, ptr %seat) {
  %pool_p = getelementptr i8, ptr %seat, i64 ${seat.pool}
  store ptr %pool, ptr %pool_p
  %scratch_p = getelementptr i8, ptr %seat, i64 ${seat.scratch}
  store ptr null, ptr %scratch_p
  store ptr %seat, ptr @seat
  ret void
}

define internal void @worker_ends(ptr %seat) {
  %scratch_p = getelementptr i8, ptr %seat, i64 ${seat.scratch}
  %scratch = load ptr, ptr %scratch_p
  call void @scratch_free(ptr %scratch)
  ret void
}

define internal void @pool_end(ptr %pool) {
entry:
  %pid = call i32 @getpid()
  %owner_p = getelementptr i8, ptr %pool, i64 ${pool.owner}
  %owner = load atomic i32, ptr %owner_p acquire, align 4
  %mine = icmp eq i32 %owner, %pid
  br i1 %mine, label %tell, label %done
tell:
  %threads_p = getelementptr i8, ptr %pool, i64 ${pool.threads}
  store atomic i32 0, ptr %threads_p seq_cst, align 4
  %ticket_p = getelementptr i8, ptr %pool, i64 ${pool.ticket}
  %before = atomicrmw add ptr %ticket_p, i64 4294967296 seq_cst
  call void @wake(ptr %ticket_p, i32 2147483647)
  %started_p = getelementptr i8, ptr %pool, i64 ${pool.started}
  %started = load i32, ptr %started_p
  %instance = getelementptr i8, ptr %pool, i64 ${sizeof.pool}
  %handles_p = getelementptr i8, ptr %instance, i64 ${instance.handles}
  br label %next
next:
  %index = phi i32 [ 0, %tell ], [ %after, %join ]
  %more = icmp slt i32 %index, %started
  br i1 %more, label %join, label %done
join:
  %handle_p = getelementptr i64, ptr %handles_p, i32 %index
  %handle = load i64, ptr %handle_p
  %joined = call i32 @pthread_join(i64 %handle, ptr null)
  %after = add i32 %index, 1
  br label %next
done:
  ret void
}
