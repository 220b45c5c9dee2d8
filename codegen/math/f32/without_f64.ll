; The multiple of pi/2 next to a float of any size, and what is left as two floats; see
; ``math.single.py``.

@nw_two_over_pi_single = internal unnamed_addr constant [${count} x i32] [${words}]
define internal { i32, float, float } @nw_quadrant_single(float %x) {
  %bits = bitcast float %x to i32
  %biased = lshr i32 %bits, 23
  %large = icmp ugt i32 %biased, 120
  %field = select i1 %large, i32 %biased, i32 120
  %fraction = and i32 %bits, 8388607
  %significand = or i32 %fraction, 8388608
  %m = zext i32 %significand to i64
  %first = sub i32 %field, 120
  %word = lshr i32 %first, 5
  %by = and i32 %first, 31
  %at = getelementptr [${count} x i32], ptr @nw_two_over_pi_single, i64 0, i32 %word
  %at1 = getelementptr i32, ptr %at, i64 1
  %at2 = getelementptr i32, ptr %at, i64 2
  %at3 = getelementptr i32, ptr %at, i64 3
  %t0 = load i32, ptr %at
  %t1 = load i32, ptr %at1
  %t2 = load i32, ptr %at2
  %t3 = load i32, ptr %at3
  %w0 = call i32 @llvm.fshl.i32(i32 %t0, i32 %t1, i32 %by)
  %w1 = call i32 @llvm.fshl.i32(i32 %t1, i32 %t2, i32 %by)
  %w2 = call i32 @llvm.fshl.i32(i32 %t2, i32 %t3, i32 %by)
  %x1 = zext i32 %w1 to i64
  %x2 = zext i32 %w2 to i64
  %p0 = mul i32 %significand, %w0
  %p1 = mul i64 %m, %x1
  %p2 = mul i64 %m, %x2
  %high = zext i32 %p0 to i64
  %top = shl i64 %high, 32
  %carry = lshr i64 %p2, 32
  %middle = add i64 %p1, %carry
  %turn = add i64 %top, %middle
  %up = add i64 %turn, 2305843009213693952
  %q = lshr i64 %up, 62
  %quarters = shl i64 %q, 62
  %left = sub i64 %turn, %quarters
  %number = sitofp i64 %left to double
  %angle = fmul double %number, ${unit}
  %r = fptrunc double %angle to float
  %back = fpext float %r to double
  %lost = fsub double %angle, %back
  %rest = fptrunc double %lost to float
  %q32 = trunc i64 %q to i32
  %near = fcmp ole float %x, ${eighth}
  %number.all = select i1 %near, i32 0, i32 %q32
  %r.near = select i1 %near, float %x, float %r
  %rest.near = select i1 %near, float 0.0, float %rest
  %finite = fcmp olt float %x, 0x7FF0000000000000
  %r.all = select i1 %finite, float %r.near, float 0x7FF8000000000000
  %a = insertvalue { i32, float, float } poison, i32 %number.all, 0
  %b = insertvalue { i32, float, float } %a, float %r.all, 1
  %c = insertvalue { i32, float, float } %b, float %rest.near, 2
  ret { i32, float, float } %c
}
