; Sets the state of the caches before a timed call, and times it; see ``cache_state.py``.
target triple = "${triple}"

declare void @nw_parallel(ptr, ptr, i64)
declare i32 @clock_gettime(i32, ptr)
${declared}

; A step is carried out line by line by the pool's threads: ``nw_parallel``'s body.
define void @cache_copy(ptr %step, i64 %begin, i64 %end) {
entry:
  %source.at = getelementptr i8, ptr %step, i64 ${step.source}
  %source = load ptr, ptr %source.at
  %goal.at = getelementptr i8, ptr %step, i64 ${step.goal}
  %goal = load ptr, ptr %goal.at
  %first = mul i64 %begin, ${line}
  %last = mul i64 %end, ${line}
  br label %head
head:
  %at = phi i64 [ %first, %entry ], [ %next, %loop ]
  %more = icmp ult i64 %at, %last
  br i1 %more, label %loop, label %done
loop:
  %p = getelementptr i8, ptr %source, i64 %at
  %q = getelementptr i8, ptr %goal, i64 %at
  ; Volatile: where source and goal are the same, the lines are to be written all the same.
  %x = load volatile <${lanes} x i32>, ptr %p, align 4
  store volatile <${lanes} x i32> %x, ptr %q, align 4
  %next = add i64 %at, ${vector}
  br label %head
done:
  ret void
}

define void @cache_flush(ptr %step, i64 %begin, i64 %end) {
entry:
  %source.at = getelementptr i8, ptr %step, i64 ${step.source}
  %source = load ptr, ptr %source.at
  %first = mul i64 %begin, ${line}
  %last = mul i64 %end, ${line}
  br label %head
head:
  %at = phi i64 [ %first, %entry ], [ %next, %loop ]
  %more = icmp ult i64 %at, %last
  br i1 %more, label %loop, label %done
loop:
  %p = getelementptr i8, ptr %source, i64 %at
  ${flush}
  %next = add i64 %at, ${line}
  br label %head
done:
  ret void
}

define void @cache_code(ptr %step, i64 %begin, i64 %end) {
entry:
  br label %head
head:
  %at = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %more = icmp ult i64 %at, %end
  br i1 %more, label %loop, label %done
loop:
  call void asm sideeffect "${code}", ""()
  %next = add i64 %at, 1
  br label %head
done:
  ret void
}

define void @set_caches(ptr %steps, i64 %count) {
entry:
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %loop, label %done
loop:
  %offset = mul i64 %n, ${sizeof.step}
  %step = getelementptr i8, ptr %steps, i64 %offset
  %body.at = getelementptr i8, ptr %step, i64 ${step.body}
  %body = load ptr, ptr %body.at
  %lines.at = getelementptr i8, ptr %step, i64 ${step.lines}
  %lines = load i64, ptr %lines.at
  call void @nw_parallel(ptr %body, ptr %step, i64 %lines)
  %next = add i64 %n, 1
  br label %head
done:
  ret void
}

; Nanoseconds of a clock.
define i64 @clock_now(i32 %clock) {
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}
