; Elsewhere than on Linux: pages as they come.
define internal void @huge_pages(ptr %memory, i64 %bytes) {
  ret void
}
