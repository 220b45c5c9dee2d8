; Has this machine the instructions that the library was compiled for? On x86-64 libgcc knows, which
; compilers link by themselves: ``__builtin_cpu_supports`` of C asks the same variables.
@__cpu_model = external global [4 x i32]
@__cpu_features2 = external global i32
declare i32 @__cpu_indicator_init()

define internal i1 @processor_fits() {
entry:
  %begun = call i32 @__cpu_indicator_init()
  %first_p = getelementptr [4 x i32], ptr @__cpu_model, i64 0, i64 3
  %first = load i32, ptr %first_p
  %second = load i32, ptr @__cpu_features2
  %first_here = and i32 %first, ${first}
  %second_here = and i32 %second, ${second}
  %first_fits = icmp eq i32 %first_here, ${first}
  %second_fits = icmp eq i32 %second_here, ${second}
  %vectors_fit = and i1 %first_fits, %second_fits
  br i1 %vectors_fit, label %tiles, label %no
tiles:
  %fits = call i1 @tiles_granted()
  ret i1 %fits
no:
  ret i1 false
}
