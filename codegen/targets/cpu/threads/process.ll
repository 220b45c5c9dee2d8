; One thread pool for the process: its state, and where threads note their scratch memory. Threads
; of Python come and go, so scratch memory is freed by the destructor of a pthread key.
@pool = internal global [${sizeof.pool} x i8] zeroinitializer, align 64
@scratch_key = internal global i64 0
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare i32 @llvm.smax.i32(i32, i32)

define internal ptr @pool_here() {
  ret ptr @pool
}

define internal ptr @scratch_top() {
  %key = load i64, ptr @scratch_key
  %top = call ptr @pthread_getspecific(i64 %key)
  ret ptr %top
}

define internal void @scratch_set(ptr %segment) {
  %key = load i64, ptr @scratch_key
  %status = call i32 @pthread_setspecific(i64 %key, ptr %segment)
  ret void
}

define void @nw_pool_set_threads(i32 %threads) {
  %some = call i32 @llvm.smax.i32(i32 %threads, i32 1)
  %threads_p = getelementptr i8, ptr @pool, i64 ${pool.threads}
  store atomic i32 %some, ptr %threads_p seq_cst, align 4
  ret void
}

define i32 @nw_pool_threads() {
  %threads_p = getelementptr i8, ptr @pool, i64 ${pool.threads}
  %threads = load atomic i32, ptr %threads_p seq_cst, align 4
  ret i32 %threads
}

define void @nw_pool_init(i32 %threads) {
  %status = call i32 @pthread_key_create(ptr @scratch_key, ptr @scratch_free)
  call void @nw_pool_set_threads(i32 %threads)
  ret void
}
