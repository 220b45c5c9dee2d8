; A pool in every instance of a C library. A thread inside a call has a seat, which leads to the
; instance's pool and to the thread's scratch memory; nothing interrupts a call.
@seat = internal thread_local global ptr null

define internal ptr @pool_here() {
  %seat = load ptr, ptr @seat
  %pool_p = getelementptr i8, ptr %seat, i64 ${seat.pool}
  %pool = load ptr, ptr %pool_p
  ret ptr %pool
}

define internal ptr @scratch_top() {
  %seat = load ptr, ptr @seat
  %scratch_p = getelementptr i8, ptr %seat, i64 ${seat.scratch}
  %scratch = load ptr, ptr %scratch_p
  ret ptr %scratch
}

define internal void @scratch_set(ptr %segment) {
  %seat = load ptr, ptr @seat
  %scratch_p = getelementptr i8, ptr %seat, i64 ${seat.scratch}
  store ptr %segment, ptr %scratch_p
  ret void
}

define i1 @nw_poll() {
  ret i1 false
}
