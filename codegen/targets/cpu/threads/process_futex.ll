; Workers of the process's pool run until the process ends; work that they do for a call of Python
; ends with that call.
declare i32 @pthread_detach(i64)
declare ptr @nw_record()
declare void @nw_lend(ptr)
declare i1 @nw_poll()

define internal void @worker_created(ptr %pool, i32 %index, i64 %id) {
  %detached = call i32 @pthread_detach(i64 %id)
  ret void
}

define internal void @worker_begins(ptr %pool, ptr %seat) {
  ret void
}

define internal void @worker_ends(ptr %seat) {
  ret void
}
