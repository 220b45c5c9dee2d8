; On Linux: ask for pages of 2 MiB (MADV_HUGEPAGE). An arena in pages of 4 KiB misses the TLB all
; the time.
declare i32 @madvise(ptr, i64, i32)

define internal void @huge_pages(ptr %memory, i64 %bytes) {
  %ignored = call i32 @madvise(ptr %memory, i64 %bytes, i32 14)
  ret void
}
