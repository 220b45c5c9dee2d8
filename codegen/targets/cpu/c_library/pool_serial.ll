; An instance without workers has none to wait for.

define internal void @pool_end(ptr %pool) {
  ret void
}
