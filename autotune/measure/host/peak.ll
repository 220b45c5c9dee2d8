; What a machine can do at best: chains of vector FMAs in registers, a pass over memory, a copy,
; steps of one cycle each, parallel loops; see ``peak.py``.
target triple = "${triple}"

declare ${v} @llvm.fmuladd.v${lanes}f32(${v}, ${v}, ${v})

define void @peak_fma(i64 %trips, ptr %sink) {
entry:
  %x = load float, ptr %sink
  %i = insertelement ${v} poison, float %x, i32 0
  %j = shufflevector ${v} %i, ${v} poison, <${lanes} x i32> zeroinitializer
${starts}
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
${phis}
${steps}
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %trips
  br i1 %more, label %loop, label %done
done:
${stores}
  ret void
}

; The first block follows the last one.
define void @peak_read(ptr %source, i64 %blocks, i64 %trips, ptr %sink) {
entry:
  %x = load float, ptr %sink
  %i = insertelement ${v} poison, float %x, i32 0
  %j = shufflevector ${v} %i, ${v} poison, <${lanes} x i32> zeroinitializer
${starts}
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %block = phi i64 [ 0, %entry ], [ %following, %loop ]
${phis}
  %at = mul i64 %block, ${chains}
  %from = getelementptr ${v}, ptr %source, i64 %at
${reads}
  %after = add i64 %block, 1
  %last = icmp uge i64 %after, %blocks
  %following = select i1 %last, i64 0, i64 %after
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %trips
  br i1 %more, label %loop, label %done
done:
${stores}
  ret void
}

define void @peak_copy(ptr noalias %source, ptr noalias %goal, i64 %blocks, i64 %trips) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %block = phi i64 [ 0, %entry ], [ %following, %loop ]
  %at = mul i64 %block, ${chains}
  %from = getelementptr ${v}, ptr %source, i64 %at
  %to = getelementptr ${v}, ptr %goal, i64 %at
${copies}
  %after = add i64 %block, 1
  %last = icmp uge i64 %after, %blocks
  %following = select i1 %last, i64 0, i64 %after
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %trips
  br i1 %more, label %loop, label %done
done:
  ret void
}

define i64 @peak_steps(i64 %trips, i64 %a, i64 %b) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x0 = phi i64 [ %a, %entry ], [ %x${steps_in_an_iteration}, %loop ]
${one_cycle_steps}
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %trips
  br i1 %more, label %loop, label %done
done:
  ret i64 %x${steps_in_an_iteration}
}

define void @peak_nothing(ptr %context, i64 %begin, i64 %end) {
  ret void
}

define void @peak_forks(ptr %parallel, i64 %times, i64 %count) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %parallel(ptr @peak_nothing, ptr null, i64 %count)
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}

; The context has the trip count of each thread's loop, then the sink of each.
define void @peak_part(ptr %context, i64 %begin, i64 %end) {
entry:
  %trips = load i64, ptr %context
  br label %loop
loop:
  %k = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %next = add i64 %k, 1
  %at = getelementptr ptr, ptr %context, i64 %next
  %sink = load ptr, ptr %at
  call void @peak_fma(i64 %trips, ptr %sink)
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @peak_burst(ptr %parallel, i64 %count, ptr %context) {
  call void %parallel(ptr @peak_part, ptr %context, i64 %count)
  ret void
}
