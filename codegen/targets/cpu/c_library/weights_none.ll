; A library without weights.

define internal i32 @weights_take(ptr %instance, ptr %options) {
  ret i32 0
}

define internal void @weights_drop(ptr %instance) {
  ret void
}
