; Has this machine the instructions that the library was compiled for? Linux tells on AArch64 and
; RISC-V: AT_HWCAP and AT_HWCAP2.
declare i64 @getauxval(i64)

define internal i1 @processor_fits() {
  %first = call i64 @getauxval(i64 16)
  %second = call i64 @getauxval(i64 26)
  %first_here = and i64 %first, ${first}
  %second_here = and i64 %second, ${second}
  %first_fits = icmp eq i64 %first_here, ${first}
  %second_fits = icmp eq i64 %second_here, ${second}
  %fits = and i1 %first_fits, %second_fits
  ret i1 %fits
}
