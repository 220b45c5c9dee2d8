; A poll in the caller's mode: it may run Python's handlers of signals.
define internal i1 @nw_caller_poll(i64 %caller) noinline nounwind {
  call void @nw_set_mode(i64 %caller)
  %ends = call i1 @nw_poll()
  %same = call i64 @nw_flush()
  ret i1 %ends
}
