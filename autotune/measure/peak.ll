; What a machine can do at best: chains of vector FMAs in registers, and a copy; see ``peak.py``.
target triple = "${triple}"

declare ${v} @llvm.fma.v${lanes}f32(${v}, ${v}, ${v})

define void @peak_fma(i64 %turns, ptr %sink) {
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
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %done
done:
${stores}
  ret void
}

define void @peak_copy(ptr noalias %source, ptr noalias %goal, i64 %vectors) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr ${v}, ptr %source, i64 %k
  %q = getelementptr ${v}, ptr %goal, i64 %k
  %x = load ${v}, ptr %p, align 4
  store ${v} %x, ptr %q, align 4
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %vectors
  br i1 %more, label %loop, label %done
done:
  ret void
}
