; A parallel loop in the caller's mode: threads that it starts are born with it, and it may poll.
define internal void @nw_caller_parallel(ptr %body, ptr %context, i64 %count, i64 %caller)
    noinline nounwind {
  call void @nw_set_mode(i64 %caller)
  call void @nw_parallel(ptr %body, ptr %context, i64 %count)
  %same = call i64 @nw_flush()
  ret void
}
