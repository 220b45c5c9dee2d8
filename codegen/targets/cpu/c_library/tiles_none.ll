; Code without tile registers asks for none.
define internal i1 @tiles_granted() {
  ret i1 true
}
