; One lane of a narrowed vector stored under a constant mask; see ``llvm_faults.py``.

define void @store_one(ptr %in, ptr %out) {
  %wide = load <4 x i32>, ptr %in, align 4
  %narrow = trunc <4 x i32> %wide to <4 x i16>
  call void @llvm.masked.store.v4i16.p0(
      <4 x i16> %narrow, ptr %out, i32 2, <4 x i1> <i1 true, i1 false, i1 false, i1 false>)
  ret void
}
declare void @llvm.masked.store.v4i16.p0(<4 x i16>, ptr, i32, <4 x i1>)
