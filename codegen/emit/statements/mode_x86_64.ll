; The mode of this thread's arithmetic, MXCSR: bit 15 gives 0 for a denormal result, bit 6 takes a
; denormal operand for 0.
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i64 @nw_flush() noinline nounwind {
  %mode_p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode_p)
  %before = load i32, ptr %mode_p
  %flush = or i32 %before, 32832
  store i32 %flush, ptr %mode_p
  call void @llvm.x86.sse.ldmxcsr(ptr %mode_p)
  %wide = zext i32 %before to i64
  ret i64 %wide
}

define internal void @nw_set_mode(i64 %mode) noinline nounwind {
  %mode_p = alloca i32
  %word = trunc i64 %mode to i32
  store i32 %word, ptr %mode_p
  call void @llvm.x86.sse.ldmxcsr(ptr %mode_p)
  ret void
}
