; Weights in the library itself.
@nw_weights = external hidden constant i8

define internal i32 @weights_take(ptr %instance, ptr %options) {
  %constants_p = getelementptr i8, ptr %instance, i64 ${instance.constants}
  store ptr @nw_weights, ptr %constants_p
  ret i32 0
}

define internal void @weights_drop(ptr %instance) {
  ret void
}
