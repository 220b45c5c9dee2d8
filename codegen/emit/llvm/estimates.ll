; What a GPU's approximate instructions may give at worst: the exact value, moved up or down by as
; much as the PTX manual allows before it is rounded; see ``estimates.py``. Powers of two are exact.

define internal float @nw_reciprocal_estimate(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %flushed = call float @nw_flushed(float %x)
  %wide = fpext float %flushed to double
  %exact = fdiv double 1.0, %wide
  %fraction = and i32 %bits, 8388607
  %power = icmp eq i32 %fraction, 0
  %hashed = mul i32 %bits, -1640531535
  %up = icmp slt i32 %hashed, 0
  %factor = select i1 %up, double ${reciprocal.up}, double ${reciprocal.down}
  %moved = fmul double %exact, %factor
  %chosen = select i1 %power, double %exact, double %moved
  %rounded = fptrunc double %chosen to float
  %result = call float @nw_flushed(float %rounded)
  ret float %result
}
define internal float @nw_rsqrt_estimate(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %wide = fpext float %x to double
  %root = call double @llvm.sqrt.f64(double %wide)
  %exact = fdiv double 1.0, %root
  %fraction = and i32 %bits, 16777215
  %power = icmp eq i32 %fraction, 8388608
  %hashed = mul i32 %bits, -1640531535
  %up = icmp slt i32 %hashed, 0
  %factor = select i1 %up, double ${rsqrt.up}, double ${rsqrt.down}
  %moved = fmul double %exact, %factor
  %chosen = select i1 %power, double %exact, double %moved
  %result = fptrunc double %chosen to float
  ret float %result
}
define internal float @nw_exp2_estimate(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %flushed = call float @nw_flushed(float %x)
  %ordered = fcmp ord float %x, 0.0
  %number = select i1 %ordered, float %flushed, float 0.0
  %high = fcmp ogt float %number, 200.0
  %below = select i1 %high, float 200.0, float %number
  %low = fcmp olt float %below, -200.0
  %inside = select i1 %low, float -200.0, float %below
  %wide = fpext float %inside to double
  %whole = call double @llvm.floor.f64(double %wide)
  %f = fsub double %wide, %whole
${exp2.series}
  %power = fcmp oeq double %f, 0.0
  %hashed = mul i32 %bits, -1640531535
  %up = icmp slt i32 %hashed, 0
  %off = select i1 %up, double ${exp2.up}, double ${exp2.down}
  %moved = fadd double %series, %off
  %fraction = select i1 %power, double 1.0, double %moved
  %n = fptosi double %whole to i64
  %biased = add i64 %n, 1023
  %place = shl i64 %biased, 52
  %scale = bitcast i64 %place to double
  %value = fmul double %fraction, %scale
  %rounded = fptrunc double %value to float
  %near = call float @nw_flushed(float %rounded)
  %result = select i1 %ordered, float %near, float %x
  ret float %result
}
define internal double @nw_reciprocal_estimate_f64(double %x) alwaysinline {
  %exact = fdiv double 1.0, %x
  %bits = bitcast double %exact to i64
  %kept = and i64 %bits, -4294967296
  %result = bitcast i64 %kept to double
  ret double %result
}
define internal float @nw_flushed(float %x) alwaysinline {
  %size = call float @llvm.fabs.f32(float %x)
  %subnormal = fcmp olt float %size, 0x3810000000000000
  %zero = call float @llvm.copysign.f32(float 0.0, float %x)
  %result = select i1 %subnormal, float %zero, float %x
  ret float %result
}
