; Results that go to the caller's arrays: ``out=``. What is not plain (a strided or derived array,
; one that overlaps another result, or an argument that it does not update) is left to Python; see
; ``runtime/converted.py``.
declare i64 @PyTuple_Size(ptr)

; Is ``out`` the one keyword of a call?
define internal i1 @has_out(ptr %table, ptr %kwnames) {
entry:
  %none = icmp eq ptr %kwnames, null
  br i1 %none, label %no, label %count
count:
  %n = call i64 @PyTuple_Size(ptr %kwnames)
  %one = icmp eq i64 %n, 1
  br i1 %one, label %compare, label %no
compare:
  %name = call ptr @PyTuple_GetItem(ptr %kwnames, i64 0)
  %out_p = getelementptr i8, ptr %table, i64 ${entry.out_name}
  %out = load ptr, ptr %out_p
  %same = icmp eq ptr %name, %out
  ret i1 %same
no:
  ret i1 false
}

; Where does the memory of a view end?
define internal ptr @view_end(ptr %view, ptr %spec) {
  %start_p = getelementptr i8, ptr %view, i64 ${Py_buffer.buf}
  %start = load ptr, ptr %start_p
  %bytes_p = getelementptr i8, ptr %spec, i64 ${parameter.bytes}
  %bytes = load i64, ptr %bytes_p
  %end = getelementptr i8, ptr %start, i64 %bytes
  ret ptr %end
}

; Is the memory of ``view`` apart from that of the first ``count`` views, or just that of the
; argument which it updates?
define internal i1 @is_apart(ptr %view, ptr %spec, ptr %views, ptr %specs, i64 %count) {
entry:
  %updates_p = getelementptr i8, ptr %spec, i64 ${parameter.updates}
  %updates = load i64, ptr %updates_p
  %start_p = getelementptr i8, ptr %view, i64 ${Py_buffer.buf}
  %start = load ptr, ptr %start_p
  %end = call ptr @view_end(ptr %view, ptr %spec)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %compare ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %compare, label %yes
compare:
  %other = getelementptr [${sizeof.Py_buffer} x i8], ptr %views, i64 %i
  %other_spec = getelementptr [${sizeof.parameter} x i8], ptr %specs, i64 %i
  %other_start_p = getelementptr i8, ptr %other, i64 ${Py_buffer.buf}
  %other_start = load ptr, ptr %other_start_p
  %other_end = call ptr @view_end(ptr %other, ptr %other_spec)
  %before = icmp ule ptr %end, %other_start
  %behind = icmp ule ptr %other_end, %start
  %separate = or i1 %before, %behind
  %old = icmp eq i64 %i, %updates
  %there = icmp eq ptr %start, %other_start
  %in_place = and i1 %old, %there
  %apart = or i1 %separate, %in_place
  %after = add i64 %i, 1
  br i1 %apart, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; The caller's array for result ``i`` of ``count``, or null.
define internal ptr @target_of(ptr %out, i64 %flags, i64 %i, i64 %count) {
entry:
  %as_tuple = and i64 %flags, ${AS_TUPLE}
  %single = icmp eq i64 %as_tuple, 0
  br i1 %single, label %whole, label %many
whole:
  ret ptr %out
many: ; not a tuple: -1, with an error set
  %n = call i64 @PyTuple_Size(ptr %out)
  %agrees = icmp eq i64 %n, %count
  br i1 %agrees, label %item, label %no
item:
  %object = call ptr @PyTuple_GetItem(ptr %out, i64 %i)
  ret ptr %object
no:
  ret ptr null
}

; Take the caller's arrays for all results; ``views`` begins with those of the arguments, and so
; does the number taken. False where one does not fit, or is not apart from what was taken before.
define internal i1 @take_targets(ptr %table, ptr %out, i64 %flags, ptr %views, ptr %pointers,
                                 ptr %taken) {
entry:
  %arguments_p = getelementptr i8, ptr %table, i64 ${entry.parameters_count}
  %arguments = load i64, ptr %arguments_p
  %specs_p = getelementptr i8, ptr %table, i64 ${entry.parameters}
  %specs = load ptr, ptr %specs_p
  %count_p = getelementptr i8, ptr %table, i64 ${entry.results_count}
  %count = load i64, ptr %count_p
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %keep ]
  %position = add i64 %arguments, %i
  store i64 %position, ptr %taken
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %yes
one:
  %object = call ptr @target_of(ptr %out, i64 %flags, i64 %i, i64 %count)
  %missing = icmp eq ptr %object, null
  br i1 %missing, label %no, label %look
look:
  %plain = call i1 @is_array(ptr %table, ptr %object)
  br i1 %plain, label %take, label %no
take: ; the results' specifications stand behind the parameters'
  %spec = getelementptr [${sizeof.parameter} x i8], ptr %specs, i64 %position
  %view = getelementptr [${sizeof.Py_buffer} x i8], ptr %views, i64 %position
  %ok = call i1 @take_array(ptr %table, ptr %object, ptr %spec, ptr %view, i32 ${WRITABLE})
  br i1 %ok, label %compare, label %no
compare:
  %apart = call i1 @is_apart(ptr %view, ptr %spec, ptr %views, ptr %specs, i64 %position)
  br i1 %apart, label %keep, label %drop
keep:
  %data_p = getelementptr i8, ptr %view, i64 ${Py_buffer.buf}
  %data = load ptr, ptr %data_p
  %pointer_p = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer_p
  %after = add i64 %i, 1
  br label %next
drop:
  call void @PyBuffer_Release(ptr %view)
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}
