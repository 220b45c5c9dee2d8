; The remainder of a division of floats of ``n`` bits, ``m`` of them in the fraction; see
; ``emit.llvm.remainder.py``.

define internal ${t} @${name}(${t} %x, ${t} %y) {
entry:
  %bx = bitcast ${t} %x to i${n}
  %by = bitcast ${t} %y to i${n}
  %ax = and i${n} %bx, ${size}
  %ay = and i${n} %by, ${size}
  %huge = icmp uge i${n} %ax, ${infinite}
  %nan = icmp ugt i${n} %ay, ${infinite}
  %zero = icmp eq i${n} %ay, 0
  %bad0 = or i1 %huge, %nan
  %bad = or i1 %bad0, %zero
  br i1 %bad, label %undefined, label %defined
undefined:
  %product = fmul ${t} %x, %y
  %none = fdiv ${t} %product, %product
  ret ${t} %none
defined:
  %less = icmp ult i${n} %ax, %ay
  br i1 %less, label %itself, label %first
itself:
  ret ${t} %x
first:
  %ex = lshr i${n} %ax, ${m}
  %ey = lshr i${n} %ay, ${m}
  %nx = icmp ne i${n} %ex, 0
  %ny = icmp ne i${n} %ey, 0
  %fx = and i${n} %ax, ${fraction}
  %fy = and i${n} %ay, ${fraction}
  %ix = or i${n} %fx, ${one}
  %iy = or i${n} %fy, ${one}
  %mx = select i1 %nx, i${n} %ix, i${n} %fx
  %my = select i1 %ny, i${n} %iy, i${n} %fy
  %kx = select i1 %nx, i${n} %ex, i${n} 1
  %ky = select i1 %ny, i${n} %ey, i${n} 1
  %distance = sub i${n} %kx, %ky
  %wx = ${widen} i${n} %mx to i64
  %wy = ${widen} i${n} %my to i64
  %all = ${widen} i${n} %distance to i64
  %rest0 = urem i64 %wx, %wy
  br label %loop
loop:
  %rest = phi i64 [ %rest0, %first ], [ %next, %step ]
  %left = phi i64 [ %all, %first ], [ %fewer, %step ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %step, label %done
step:
  %few = icmp ult i64 %left, ${bits}
  %by.bits = select i1 %few, i64 %left, i64 ${bits}
  %up = shl i64 %rest, %by.bits
  %next = urem i64 %up, %wy
  %fewer = sub i64 %left, %by.bits
  br label %loop
done:
  %number = uitofp i64 %rest to ${t}
  %normal = icmp ugt i${n} %ky, ${m}
  %high = sub i${n} %ky, ${m}
  %scale.normal = shl i${n} %high, ${m}
  %low = sub i${n} %ky, 1
  %low.safe = select i1 %normal, i${n} 0, i${n} %low
  %scale.small = shl i${n} 1, %low.safe
  %scale.bits = select i1 %normal, i${n} %scale.normal, i${n} %scale.small
  %scale = bitcast i${n} %scale.bits to ${t}
  %result = fmul ${t} %number, %scale
  %bits.result = bitcast ${t} %result to i${n}
  %sign = and i${n} %bx, ${top}
  %signed = or i${n} %bits.result, %sign
  %found = bitcast i${n} %signed to ${t}
  ret ${t} %found
}
