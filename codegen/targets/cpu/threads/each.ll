; A routine for each matrix of a batch, whose chunks the pool's threads share.
define internal void @each_chunks(ptr %context, i64 %begin, i64 %end) {
entry:
  %routine = load ptr, ptr %context
  %count_p = getelementptr i64, ptr %context, i64 1
  %count = load i64, ptr %count_p
  %chunks_p = getelementptr i64, ptr %context, i64 2
  %chunks = load i64, ptr %chunks_p
  %table_p = getelementptr i64, ptr %context, i64 3
  %table = load ptr, ptr %table_p
  %steps = getelementptr i8, ptr %table, i64 ${row}
  %owns = getelementptr i8, ptr %steps, i64 ${row}
  br label %chunk_test
chunk_test:
  %chunk = phi i64 [ %begin, %entry ], [ %chunk_next, %test ]
  %chunk_next = add i64 %chunk, 1
  %more = icmp slt i64 %chunk, %end
  br i1 %more, label %bounds, label %done
bounds:
  %low_of = mul i64 %chunk, %count
  %low = udiv i64 %low_of, %chunks
  %high_of = mul i64 %chunk_next, %count
  %high = udiv i64 %high_of, %chunks
  br label %test
test:
  %number = phi i64 [ %low, %bounds ], [ %number_next, %call ]
  %inside = icmp slt i64 %number, %high
  br i1 %inside, label %call, label %chunk_test
call:
  ${load}
  call void %routine(${pointers})
  %number_next = add i64 %number, 1
  br label %test
done:
  ret void
}

define void @nw_each(ptr %routine, i64 %count, i64 %chunks, ptr %table) {
  %context = alloca [4 x i64], align 8
  store ptr %routine, ptr %context
  %count_p = getelementptr i64, ptr %context, i64 1
  store i64 %count, ptr %count_p
  %chunks_p = getelementptr i64, ptr %context, i64 2
  store i64 %chunks, ptr %chunks_p
  %table_p = getelementptr i64, ptr %context, i64 3
  store ptr %table, ptr %table_p
  call void @nw_parallel(ptr @each_chunks, ptr %context, i64 %chunks)
  ret void
}
