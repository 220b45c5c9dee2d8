; The C function behind every executable in LLVM IR: ``nw_call``; see ``entry.py``. ``%table`` is an
; entry, ``%view`` a Py_buffer; both are declared in ``runtime/structs.py``.
target triple = "${triple}"

declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @nw_pool_set_threads(i32)
declare i64 @nw_scratch_mark()
declare void @nw_scratch_release(i64)
declare i32 @nw_enter(ptr)
declare i32 @nw_leave(ptr)

; Does a buffer's format mean the element type? ``code`` holds the characters it may begin with
; in bytes 0 and 1, and the second character, if there must be one, in byte 2.
define internal i1 @fits_format(ptr %format0, i32 %code) {
entry:
  %none = icmp eq ptr %format0, null
  br i1 %none, label %bytes, label %look
bytes:
  %first_code0 = trunc i32 %code to i8
  %is_u8 = icmp eq i8 %first_code0, 66
  ret i1 %is_u8
look:
  %prefix = load i8, ptr %format0
  switch i8 %prefix, label %compare [ i8 64, label %skip i8 61, label %skip i8 60, label %skip ]
skip:
  br label %compare
compare:
  %offset = phi i64 [ 0, %look ], [ 1, %skip ]
  %format = getelementptr i8, ptr %format0, i64 %offset
  %c0 = load i8, ptr %format
  %first_code = trunc i32 %code to i8
  %shift8 = lshr i32 %code, 8
  %other_code = trunc i32 %shift8 to i8
  %shift16 = lshr i32 %code, 16
  %second_code = trunc i32 %shift16 to i8
  %same0 = icmp eq i8 %c0, %first_code
  %same1 = icmp eq i8 %c0, %other_code
  %same = or i1 %same0, %same1
  br i1 %same, label %second, label %no
second:
  %second_p = getelementptr i8, ptr %format, i64 1
  %c1 = load i8, ptr %second_p
  %matches = icmp eq i8 %c1, %second_code
  %end = icmp eq i8 %c1, 0
  br i1 %end, label %answer, label %last
last:
  %last_p = getelementptr i8, ptr %format, i64 2
  %c2 = load i8, ptr %last_p
  %end2 = icmp eq i8 %c2, 0
  br label %answer
answer:
  %ended = phi i1 [ true, %second ], [ %end2, %last ]
  %good = and i1 %matches, %ended
  ret i1 %good
no:
  ret i1 false
}

define internal i1 @fits_dims(ptr %view, ptr %parameter) {
entry:
  %ndim_p = getelementptr i8, ptr %view, i64 ${Py_buffer.ndim}
  %ndim32 = load i32, ptr %ndim_p
  %ndim = sext i32 %ndim32 to i64
  %rank_p = getelementptr i8, ptr %parameter, i64 ${parameter.rank}
  %rank = load i64, ptr %rank_p
  %same_rank = icmp eq i64 %ndim, %rank
  br i1 %same_rank, label %size, label %no
size:
  %itemsize_p = getelementptr i8, ptr %view, i64 ${Py_buffer.itemsize}
  %itemsize = load i64, ptr %itemsize_p
  %wanted_p = getelementptr i8, ptr %parameter, i64 ${parameter.itemsize}
  %wanted = load i64, ptr %wanted_p
  %same_size = icmp eq i64 %itemsize, %wanted
  br i1 %same_size, label %walk, label %no
walk:
  %shape_p = getelementptr i8, ptr %view, i64 ${Py_buffer.shape}
  %shape = load ptr, ptr %shape_p
  %dims_p = getelementptr i8, ptr %parameter, i64 ${parameter.dims}
  %dims = load ptr, ptr %dims_p
  br label %next
next:
  %i = phi i64 [ 0, %walk ], [ %after, %check ]
  %more = icmp slt i64 %i, %rank
  br i1 %more, label %check, label %yes
check:
  %have_p = getelementptr i64, ptr %shape, i64 %i
  %want_p = getelementptr i64, ptr %dims, i64 %i
  %have = load i64, ptr %have_p
  %want = load i64, ptr %want_p
  %after = add i64 %i, 1
  %same = icmp eq i64 %have, %want
  br i1 %same, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

define internal ptr @type_of(ptr %table, ptr %object) {
  %offset_p = getelementptr i8, ptr %table, i64 ${entry.type_offset}
  %offset = load i64, ptr %offset_p
  %type_p = getelementptr i8, ptr %object, i64 %offset
  %type = load ptr, ptr %type_p
  ret ptr %type
}

; Is this one of NumPy's arrays, and not of a derived class?
define internal i1 @is_array(ptr %table, ptr %object) {
  %type = call ptr @type_of(ptr %table, ptr %object)
  %plain_p = getelementptr i8, ptr %table, i64 ${entry.ndarray}
  %plain = load ptr, ptr %plain_p
  %is = icmp eq ptr %type, %plain
  ret i1 %is
}

; Is this of a class derived from NumPy's arrays? The buffer of a masked array would do, and its
; mask be lost.
define internal i1 @is_derived(ptr %table, ptr %object) {
entry:
  %is_plain = call i1 @is_array(ptr %table, ptr %object)
  br i1 %is_plain, label %no, label %look
look:
  %type = call ptr @type_of(ptr %table, ptr %object)
  %plain_p = getelementptr i8, ptr %table, i64 ${entry.ndarray}
  %plain = load ptr, ptr %plain_p
  %derived = call i32 @PyType_IsSubtype(ptr %type, ptr %plain)
  %yes = icmp ne i32 %derived, 0
  ret i1 %yes
no:
  ret i1 false
}

; Fill ``view`` from ``object``. False (nothing held; an error may be set) where it does not fit.
define internal i1 @take(ptr %table, ptr %object, ptr %parameter, ptr %view) {
entry:
  %exchange = call ptr @exchange_for(ptr %table, ptr %object)
  %own = icmp eq ptr %exchange, null
  br i1 %own, label %array, label %foreign
foreign:
  %taken = call i1 @take_exchanged(ptr %exchange, ptr %object, ptr %parameter, ptr %view)
  ret i1 %taken
array:
  %derived = call i1 @is_derived(ptr %table, ptr %object)
  br i1 %derived, label %no, label %own_array
own_array:
  %fits = call i1 @take_array(ptr %table, ptr %object, ptr %parameter, ptr %view, i32 0)
  ret i1 %fits
no:
  ret i1 false
}

; The same through the buffer protocol, with ``access`` beside the flags of a contiguous buffer.
define internal i1 @take_array(ptr %table, ptr %object, ptr %parameter, ptr %view, i32 %access) {
entry:
  %code_p = getelementptr i8, ptr %parameter, i64 ${parameter.code}
  %code = load i32, ptr %code_p
  %exact_p = getelementptr i8, ptr %parameter, i64 ${parameter.dtype}
  %exact = load ptr, ptr %exact_p
  %by_format = icmp eq ptr %exact, null
  br i1 %by_format, label %get, label %type
type: ; an element type without a buffer format: the array's dtype must be that very object
  %dtype_name_p = getelementptr i8, ptr %table, i64 ${entry.dtype_name}
  %dtype_name = load ptr, ptr %dtype_name_p
  %dtype = call ptr @PyObject_GetAttr(ptr %object, ptr %dtype_name)
  %has = icmp ne ptr %dtype, null
  br i1 %has, label %compare, label %no
compare:
  call void @Py_DecRef(ptr %dtype)
  %is = icmp eq ptr %dtype, %exact
  br i1 %is, label %get, label %no
get:
  %layout = select i1 %by_format, i32 ${WITH_FORMAT}, i32 ${C_CONTIGUOUS}
  %flags = or i32 %layout, %access
  %status = call i32 @PyObject_GetBuffer(ptr %object, ptr %view, i32 %flags)
  %got = icmp eq i32 %status, 0
  br i1 %got, label %dims, label %no
dims:
  %fits = call i1 @fits_dims(ptr %view, ptr %parameter)
  br i1 %fits, label %format, label %drop
format:
  br i1 %by_format, label %read, label %yes
read:
  %format_p = getelementptr i8, ptr %view, i64 ${Py_buffer.format}
  %format_text = load ptr, ptr %format_p
  %good = call i1 @fits_format(ptr %format_text, i32 %code)
  br i1 %good, label %yes, label %drop
yes:
  ret i1 true
drop:
  call void @PyBuffer_Release(ptr %view)
  br label %no
no:
  ret i1 false
}

; The arena out of its slot, or a new one, which begins a page (of 4 MiB and more: in huge pages).
; Null only when memory is out.
define internal ptr @arena_take(ptr %table) {
entry:
  %slot = getelementptr i8, ptr %table, i64 ${entry.arena}
  %kept = atomicrmw xchg ptr %slot, ptr null acquire
  %have = icmp ne ptr %kept, null
  br i1 %have, label %done, label %make
make:
  %made = alloca ptr
  %bytes_p = getelementptr i8, ptr %table, i64 ${entry.arena_bytes}
  %bytes = load i64, ptr %bytes_p
  %padded = add i64 %bytes, 64
  %large = icmp uge i64 %bytes, 4194304
  %align = select i1 %large, i64 2097152, i64 4096
  %status = call i32 @posix_memalign(ptr %made, i64 %align, i64 %padded)
  %ok = icmp eq i32 %status, 0
  %new = load ptr, ptr %made
  %arena = select i1 %ok, ptr %new, ptr null
  %both = and i1 %ok, %large
  br i1 %both, label %huge, label %out
huge:
  call void @huge_pages(ptr %arena, i64 %padded)
  br label %out
out:
  ret ptr %arena
done:
  ret ptr %kept
}

define internal void @arena_give(ptr %table, ptr %arena) {
entry:
  %slot = getelementptr i8, ptr %table, i64 ${entry.arena}
  %pair = cmpxchg ptr %slot, ptr null, ptr %arena release monotonic
  %stored = extractvalue { ptr, i1 } %pair, 1
  br i1 %stored, label %done, label %drop
drop:
  call void @free(ptr %arena)
  br label %done
done:
  ret void
}

; Free the kept arena, when its executable is dropped.
define void @nw_arena_free(ptr %table) {
  %slot = getelementptr i8, ptr %table, i64 ${entry.arena}
  %kept = atomicrmw xchg ptr %slot, ptr null acquire
  call void @free(ptr %kept)
  ret void
}

; Run on given pointers: 0 when done, NO_MEMORY when memory is out, FAILED when a library call
; failed, INTERRUPTED when the call was interrupted. The caller does not hold the GIL.
define i32 @nw_run(ptr %table, ptr %params, ptr %results) {
entry:
  %arena = call ptr @arena_take(ptr %table)
  %bad = icmp eq ptr %arena, null
  br i1 %bad, label %no, label %go
go:
  %run_p = getelementptr i8, ptr %table, i64 ${entry.run}
  %run = load ptr, ptr %run_p
  %constants_p = getelementptr i8, ptr %table, i64 ${entry.constants}
  %constants = load ptr, ptr %constants_p
  %threads_p = getelementptr i8, ptr %table, i64 ${entry.threads}
  %threads = load i32, ptr %threads_p
  call void @nw_pool_set_threads(i32 %threads)
  %mark = call i64 @nw_scratch_mark()
  %status = call i32 %run(ptr %params, ptr %results, ptr %arena, ptr %constants)
  call void @nw_scratch_release(i64 %mark)
  call void @arena_give(ptr %table, ptr %arena)
  ret i32 %status
no:
  ret i32 ${NO_MEMORY}
}

define internal void @release_views(ptr %views, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %drop ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %drop, label %done
drop:
  %view = getelementptr [${sizeof.Py_buffer} x i8], ptr %views, i64 %i
  call void @PyBuffer_Release(ptr %view)
  %after = add i64 %i, 1
  br label %next
done:
  ret void
}

define internal void @drop_objects(ptr %objects, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %drop ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %drop, label %done
drop:
  %object_p = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object_p
  call void @Py_DecRef(ptr %object)
  %after = add i64 %i, 1
  br label %next
done:
  ret void
}

; Take every argument; the number taken is stored. False where one does not fit.
define internal i1 @take_all(ptr %table, ptr %args, i64 %count, ptr %views, ptr %pointers,
                             ptr %taken) {
entry:
  %parameters_p = getelementptr i8, ptr %table, i64 ${entry.parameters}
  %parameters = load ptr, ptr %parameters_p
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %keep ]
  store i64 %i, ptr %taken
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %yes
one:
  %object_p = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %object_p
  %parameter = getelementptr [${sizeof.parameter} x i8], ptr %parameters, i64 %i
  %view = getelementptr [${sizeof.Py_buffer} x i8], ptr %views, i64 %i
  %ok = call i1 @take(ptr %table, ptr %object, ptr %parameter, ptr %view)
  br i1 %ok, label %keep, label %no
keep:
  %data_p = getelementptr i8, ptr %view, i64 ${Py_buffer.buf}
  %data = load ptr, ptr %data_p
  %pointer_p = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer_p
  %after = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Fill ``view`` from a result. False, with an error set, where it has no memory to write to.
define internal i1 @written(ptr %table, ptr %object, ptr %view) {
entry:
  %tensor = alloca [${sizeof.dl_tensor} x i8], align 8
  %exchange = call ptr @exchange_for(ptr %table, ptr %object)
  %own = icmp eq ptr %exchange, null
  br i1 %own, label %array, label %foreign
foreign:
  %read = call i1 @read_exchanged(ptr %exchange, ptr %object, ptr %tensor, ptr %view)
  ret i1 %read
array:
  %status = call i32 @PyObject_GetBuffer(ptr %object, ptr %view, i32 ${WRITABLE})
  %got = icmp eq i32 %status, 0
  ret i1 %got
}

; Make every result; the number made is stored. False, with an error set, where one fails.
define internal i1 @make_all(ptr %table, i64 %count, ptr %objects, ptr %pointers, ptr %made) {
entry:
  %view = alloca [${sizeof.Py_buffer} x i8], align 8
  %results_p = getelementptr i8, ptr %table, i64 ${entry.results}
  %results = load ptr, ptr %results_p
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %keep ]
  store i64 %i, ptr %made
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %yes
one:
  %result = getelementptr [${sizeof.result} x i8], ptr %results, i64 %i
  %maker_p = getelementptr i8, ptr %result, i64 ${result.allocator}
  %maker = load ptr, ptr %maker_p
  %shape_and_dtype = getelementptr i8, ptr %result, i64 ${result.arguments}
  %object = call ptr @PyObject_Vectorcall(ptr %maker, ptr %shape_and_dtype, i64 2, ptr null)
  %bad = icmp eq ptr %object, null
  br i1 %bad, label %no, label %get
get:
  %got = call i1 @written(ptr %table, ptr %object, ptr %view)
  br i1 %got, label %keep, label %drop
drop:
  call void @Py_DecRef(ptr %object)
  br label %no
keep:
  %data_p = getelementptr i8, ptr %view, i64 ${Py_buffer.buf}
  %data = load ptr, ptr %data_p
  call void @PyBuffer_Release(ptr %view)
  %object_p = getelementptr ptr, ptr %objects, i64 %i
  store ptr %object, ptr %object_p
  %pointer_p = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer_p
  %after = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; One object, or a tuple of them. Takes over the references.
define internal ptr @bundle(ptr %objects, i64 %count, i64 %flags) {
entry:
  %as_tuple = and i64 %flags, ${AS_TUPLE}
  %single = icmp eq i64 %as_tuple, 0
  br i1 %single, label %one, label %many
one:
  %object1 = load ptr, ptr %objects
  ret ptr %object1
many:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %bad = icmp eq ptr %tuple, null
  br i1 %bad, label %drop, label %next
drop:
  call void @drop_objects(ptr %objects, i64 %count)
  ret ptr null
next:
  %i = phi i64 [ 0, %many ], [ %after, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %put, label %done
put:
  %object_p = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object_p
  %status = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %object)
  %after = add i64 %i, 1
  br label %next
done:
  ret ptr %tuple
}

; The same from Python. INTERRUPTED means that an exception is set. What runs with the GIL held
; never polls.
define internal i32 @run_program(ptr %table, ptr %params, ptr %results, i64 %flags) {
entry:
  %record = alloca [${sizeof.record} x i8], align 8
  %releases = and i64 %flags, ${RELEASE_GIL}
  %hold = icmp eq i64 %releases, 0
  br i1 %hold, label %held, label %free
held:
  %status0 = call i32 @nw_run(ptr %table, ptr %params, ptr %results)
  ret i32 %status0
free:
  %entered = call i32 @nw_enter(ptr %record)
  %waiting = icmp slt i32 %entered, 0
  br i1 %waiting, label %raised, label %go
go:
  %thread = call ptr @PyEval_SaveThread()
  %thread_p = getelementptr i8, ptr %record, i64 ${record.thread}
  store ptr %thread, ptr %thread_p
  %status1 = call i32 @nw_run(ptr %table, ptr %params, ptr %results)
  call void @PyEval_RestoreThread(ptr %thread)
  %left = call i32 @nw_leave(ptr %record)
  %ended = icmp ne i32 %left, 0
  br i1 %ended, label %raised, label %done
done:
  ret i32 %status1
raised:
  ret i32 ${INTERRUPTED}
}

define ptr @nw_call(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {
entry:
  %number = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %table = call ptr @PyLong_AsVoidPtr(ptr %number)
  %taken = alloca i64
  %made = alloca i64
  store i64 0, ptr %made
  %count_p = getelementptr i8, ptr %table, i64 ${entry.parameters_count}
  %count = load i64, ptr %count_p
  %into = call i1 @has_out(ptr %table, ptr %kwnames)
  %named = icmp ne ptr %kwnames, null
  %misnamed = xor i1 %named, %into
  %other = icmp ne i64 %nargs, %count
  %unusual = or i1 %misnamed, %other
  br i1 %unusual, label %slow, label %take
take:
  %results_n_p = getelementptr i8, ptr %table, i64 ${entry.results_count}
  %results_n = load i64, ptr %results_n_p
  %flags_p = getelementptr i8, ptr %table, i64 ${entry.flags}
  %flags = load i64, ptr %flags_p
  %most = add i64 %count, %results_n
  %views = alloca [${sizeof.Py_buffer} x i8], i64 %most, align 8
  %params = alloca ptr, i64 %count
  %objects = alloca ptr, i64 %results_n
  %results = alloca ptr, i64 %results_n
  %fit = call i1 @take_all(ptr %table, ptr %args, i64 %count, ptr %views, ptr %params, ptr %taken)
  br i1 %fit, label %place, label %misfit
place:
  br i1 %into, label %targets, label %make
targets:
  %out_p = getelementptr ptr, ptr %args, i64 %nargs
  %out = load ptr, ptr %out_p
  %ready = call i1 @take_targets(ptr %table, ptr %out, i64 %flags, ptr %views, ptr %results,
                                 ptr %taken)
  br i1 %ready, label %run, label %misfit
misfit:
  %some = load i64, ptr %taken
  call void @release_views(ptr %views, i64 %some)
  call void @PyErr_Clear()
  br label %slow
slow:
  %slow_p = getelementptr i8, ptr %table, i64 ${entry.slow}
  %python = load ptr, ptr %slow_p
  %answer = call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %answer
make:
  %good = call i1 @make_all(ptr %table, i64 %results_n, ptr %objects, ptr %results, ptr %made)
  br i1 %good, label %run, label %fail
run:
  %status = call i32 @run_program(ptr %table, ptr %params, ptr %results, i64 %flags)
  switch i32 %status, label %memory [ i32 0, label %finish i32 ${FAILED}, label %raise
      i32 ${INTERRUPTED}, label %fail ]
finish:
  %all = load i64, ptr %taken
  call void @release_views(ptr %views, i64 %all)
  br i1 %into, label %written, label %pack
written:
  %given_p = getelementptr ptr, ptr %args, i64 %nargs
  %given = load ptr, ptr %given_p
  call void @Py_IncRef(ptr %given)
  ret ptr %given
pack:
  %value = call ptr @bundle(ptr %objects, i64 %results_n, i64 %flags)
  ret ptr %value
memory:
  %unused = call ptr @PyErr_NoMemory()
  br label %fail
raise: ; a Python function knows what the library call raised, and raises it here
  %raise_p = getelementptr i8, ptr %table, i64 ${entry.failure}
  %raise_f = load ptr, ptr %raise_p
  %null = call ptr @PyObject_Vectorcall(ptr %raise_f, ptr null, i64 0, ptr null)
  br label %fail
fail:
  %begun = load i64, ptr %made
  call void @drop_objects(ptr %objects, i64 %begun)
  %held = load i64, ptr %taken
  call void @release_views(ptr %views, i64 %held)
  ret ptr null
}
