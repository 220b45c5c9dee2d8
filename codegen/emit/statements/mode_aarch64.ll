; The mode of this thread's arithmetic, FPCR: bit 24 takes denormals of f32 and f64 for 0 and gives
; 0 for them. Arithmetic of f16 is that of f32 here, so that bit 19, for f16, has nothing to do.
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i64 @nw_flush() noinline nounwind {
  %before = call i64 @llvm.aarch64.get.fpcr()
  %flush = or i64 %before, 16777216
  call void @llvm.aarch64.set.fpcr(i64 %flush)
  ret i64 %before
}

define internal void @nw_set_mode(i64 %mode) noinline nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}
