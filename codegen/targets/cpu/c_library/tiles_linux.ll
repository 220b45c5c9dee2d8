; Does Linux keep tile registers for this process? It does so only for processes that ask, by
; arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA), and refuses where the processor has none. Those that
; have them have the instructions for bytes and bf16 as well.
define internal i1 @tiles_granted() {
  %status = call i64 (i64, ...) @syscall(i64 ${number}, i64 ${request}, i64 ${kind})
  %granted = icmp eq i64 %status, 0
  ret i1 %granted
}
