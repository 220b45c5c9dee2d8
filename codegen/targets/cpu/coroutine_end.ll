; Whether LLVM accepts this tells what ``llvm.coro.end`` returns; see ``cpu.coroutine_end``.

declare void @llvm.coro.end(ptr, i1, token)
define void @end(ptr %frame) {
  call void @llvm.coro.end(ptr %frame, i1 false, token none)
  ret void
}
