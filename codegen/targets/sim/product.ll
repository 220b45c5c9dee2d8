; A matrix product of one warp: operands are gathered, row by row, multiplied, and scattered.

define internal ptr @${symbol}_slot(ptr %slots, i64 %stride, i64 %lane, i64 %offset) alwaysinline {
  %at = mul i64 %lane, %stride
  %both = add i64 %at, %offset
  %p = getelementptr i8, ptr %slots, i64 %both
  %slot = load ptr, ptr %p
  ret ptr %slot
}

define internal void @${symbol}(ptr %slots, i64 %stride) {
entry:
  %m.a = alloca [${a} x ${number}], align 64
  %m.b = alloca [${b} x ${number}], align 64
  %m.c = alloca [${c} x ${number}], align 64
  br label %gather
gather:
  %lane = phi i64 [ 0, %entry ], [ %lane1, %gather ]
${gather}
  %lane1 = add i64 %lane, 1
  %more = icmp ult i64 %lane1, 32
  br i1 %more, label %gather, label %rows
rows:
  %row = phi i64 [ 0, %gather ], [ %row1, %row.done ]
  %c.row = mul i64 %row, ${n}
  %c.p = getelementptr ${number}, ptr %m.c, i64 %c.row
  %c.old = load <${n} x ${number}>, ptr %c.p, align 4
  %a.row = mul i64 %row, ${k}
  %a.p = getelementptr ${number}, ptr %m.a, i64 %a.row
  br label %step
step:
  %k = phi i64 [ 0, %rows ], [ %k1, %step ]
  %sum = phi <${n} x ${number}> [ %c.old, %rows ], [ %sum1, %step ]
  %a.q = getelementptr ${number}, ptr %a.p, i64 %k
  %x = load ${number}, ptr %a.q
  %x.one = insertelement <${n} x ${number}> poison, ${number} %x, i64 0
  %x.all = shufflevector <${n} x ${number}> %x.one, <${n} x ${number}> poison,
      <${n} x i32> zeroinitializer
  %b.row = mul i64 %k, ${n}
  %b.p = getelementptr ${number}, ptr %m.b, i64 %b.row
  %y = load <${n} x ${number}>, ptr %b.p, align 4
  %xy = ${mul} <${n} x ${number}> %x.all, %y
  %sum1 = ${add} <${n} x ${number}> %sum, %xy
  %k1 = add i64 %k, 1
  %k.more = icmp ult i64 %k1, ${k}
  br i1 %k.more, label %step, label %row.done
row.done:
  store <${n} x ${number}> %sum1, ptr %c.p, align 4
  %row1 = add i64 %row, 1
  %row.more = icmp ult i64 %row1, ${m}
  br i1 %row.more, label %rows, label %scatter
scatter:
  %out.lane = phi i64 [ 0, %row.done ], [ %out.lane1, %scatter ]
${scatter}
  %out.lane1 = add i64 %out.lane, 1
  %out.more = icmp ult i64 %out.lane1, 32
  br i1 %out.more, label %scatter, label %out
out:
  ret void
}
