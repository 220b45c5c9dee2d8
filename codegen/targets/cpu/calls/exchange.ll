; Arrays of other libraries by DLPack's C exchange function; see ``runtime/dlpack/exchange.py``.
; ``%exchange`` and ``%tensor`` are structures of ``runtime/structs.py``.
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)

; The exchange that reads an object, or null.
define internal ptr @exchange_for(ptr %table, ptr %object) {
entry:
  %exchange_p = getelementptr i8, ptr %table, i64 ${entry.exchange}
  %exchange = load ptr, ptr %exchange_p
  %none = icmp eq ptr %exchange, null
  br i1 %none, label %no, label %compare
compare:
  %offset_p = getelementptr i8, ptr %table, i64 ${entry.type_offset}
  %offset = load i64, ptr %offset_p
  %type_p = getelementptr i8, ptr %object, i64 %offset
  %type = load ptr, ptr %type_p
  %wanted_p = getelementptr i8, ptr %exchange, i64 ${exchange.type}
  %wanted = load ptr, ptr %wanted_p
  %exact = icmp eq ptr %type, %wanted
  br i1 %exact, label %yes, label %look
look:
  %flags_p = getelementptr i8, ptr %exchange, i64 ${exchange.flags}
  %flags = load i64, ptr %flags_p
  %derived = and i64 %flags, ${DERIVED}
  %takes_derived = icmp ne i64 %derived, 0
  br i1 %takes_derived, label %ask, label %no
ask:
  %is = call i32 @PyType_IsSubtype(ptr %type, ptr %wanted)
  %subtype = icmp ne i32 %is, 0
  br i1 %subtype, label %yes, label %no
yes:
  ret ptr %exchange
no:
  ret ptr null
}

; Is a value Python's False? Takes over the reference, which may be null.
define internal i1 @is_false(ptr %exchange, ptr %value) {
entry:
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %no, label %compare
compare:
  %false_p = getelementptr i8, ptr %exchange, i64 ${exchange.false}
  %false = load ptr, ptr %false_p
  %same = icmp eq ptr %value, %false
  call void @Py_DecRef(ptr %value)
  ret i1 %same
no:
  ret i1 false
}

; Is an array's memory its value, and may anyone read it?
define internal i1 @is_plain(ptr %exchange, ptr %object) {
entry:
  %argument = alloca ptr
  store ptr %object, ptr %argument
  %attributes_n_p = getelementptr i8, ptr %exchange, i64 ${exchange.attributes_count}
  %attributes_n = load i64, ptr %attributes_n_p
  %attributes_p = getelementptr i8, ptr %exchange, i64 ${exchange.attributes}
  %attributes = load ptr, ptr %attributes_p
  %methods_n_p = getelementptr i8, ptr %exchange, i64 ${exchange.methods_count}
  %methods_n = load i64, ptr %methods_n_p
  %methods_p = getelementptr i8, ptr %exchange, i64 ${exchange.methods}
  %methods = load ptr, ptr %methods_p
  br label %next_attribute
next_attribute:
  %i = phi i64 [ 0, %entry ], [ %i_after, %attribute ]
  %more_attributes = icmp slt i64 %i, %attributes_n
  br i1 %more_attributes, label %attribute, label %next_method
attribute:
  %attribute_p = getelementptr ptr, ptr %attributes, i64 %i
  %attribute_name = load ptr, ptr %attribute_p
  %value = call ptr @PyObject_GetAttr(ptr %object, ptr %attribute_name)
  %off = call i1 @is_false(ptr %exchange, ptr %value)
  %i_after = add i64 %i, 1
  br i1 %off, label %next_attribute, label %no
next_method:
  %j = phi i64 [ 0, %next_attribute ], [ %j_after, %method ]
  %more_methods = icmp slt i64 %j, %methods_n
  br i1 %more_methods, label %method, label %yes
method:
  %method_p = getelementptr ptr, ptr %methods, i64 %j
  %method_name = load ptr, ptr %method_p
  %answer = call ptr @PyObject_VectorcallMethod(ptr %method_name, ptr %argument, i64 1, ptr null)
  %denied = call i1 @is_false(ptr %exchange, ptr %answer)
  %j_after = add i64 %j, 1
  br i1 %denied, label %next_method, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Have the array's owner fill ``tensor``; its address goes into ``view``, which then holds nothing.
define internal i1 @read_exchanged(ptr %exchange, ptr %object, ptr %tensor, ptr %view) {
entry:
  %function_p = getelementptr i8, ptr %exchange, i64 ${exchange.function}
  %function = load ptr, ptr %function_p
  %status = call i32 %function(ptr %object, ptr %tensor)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %place, label %no
place:
  %device_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.device}
  %device = load i32, ptr %device_p
  %on_cpu = icmp eq i32 %device, ${CPU}
  br i1 %on_cpu, label %yes, label %no
yes:
  %data_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.data}
  %data = load ptr, ptr %data_p
  %offset_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.offset}
  %offset = load i64, ptr %offset_p
  %start = getelementptr i8, ptr %data, i64 %offset
  %buf_p = getelementptr i8, ptr %view, i64 ${Py_buffer.buf}
  store ptr %start, ptr %buf_p
  %obj_p = getelementptr i8, ptr %view, i64 ${Py_buffer.obj}
  store ptr null, ptr %obj_p
  ret i1 true
no:
  ret i1 false
}

; Does a tensor have a parameter's dimensions, in row-major order without gaps?
define internal i1 @fits_tensor(ptr %tensor, ptr %parameter) {
entry:
  %dtype_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.dtype}
  %dtype = load i32, ptr %dtype_p
  %wanted_p = getelementptr i8, ptr %parameter, i64 ${parameter.dlpack}
  %wanted = load i32, ptr %wanted_p
  %same_type = icmp eq i32 %dtype, %wanted
  %rank32_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.rank}
  %rank32 = load i32, ptr %rank32_p
  %have_rank = sext i32 %rank32 to i64
  %rank_p = getelementptr i8, ptr %parameter, i64 ${parameter.rank}
  %rank = load i64, ptr %rank_p
  %same_rank = icmp eq i64 %have_rank, %rank
  %comparable = and i1 %same_type, %same_rank
  br i1 %comparable, label %walk, label %no
walk:
  %shape_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.dims}
  %shape = load ptr, ptr %shape_p
  %strides_p = getelementptr i8, ptr %tensor, i64 ${dl_tensor.strides}
  %strides = load ptr, ptr %strides_p
  %dense_by_default = icmp eq ptr %strides, null
  %dims_p = getelementptr i8, ptr %parameter, i64 ${parameter.dims}
  %dims = load ptr, ptr %dims_p
  br label %next
next: ; from the last dimension on; ``size`` is the elements that one step has to skip
  %left = phi i64 [ %rank, %walk ], [ %i, %agree ]
  %size = phi i64 [ 1, %walk ], [ %larger, %agree ]
  %dense = phi i1 [ true, %walk ], [ %still, %agree ]
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %check, label %done
check:
  %i = sub i64 %left, 1
  %have_p = getelementptr i64, ptr %shape, i64 %i
  %have = load i64, ptr %have_p
  %want_p = getelementptr i64, ptr %dims, i64 %i
  %want = load i64, ptr %want_p
  %same = icmp eq i64 %have, %want
  br i1 %same, label %stride, label %no
stride:
  br i1 %dense_by_default, label %agree, label %look
look:
  %stride_p = getelementptr i64, ptr %strides, i64 %i
  %step = load i64, ptr %stride_p
  %expected = icmp eq i64 %step, %size
  br label %agree
agree:
  %in_order = phi i1 [ true, %stride ], [ %expected, %look ]
  %single = icmp eq i64 %want, 1
  %fine = or i1 %single, %in_order
  %still = and i1 %dense, %fine
  %larger = mul i64 %size, %want
  br label %next
done:
  %empty = icmp eq i64 %size, 0
  %good = or i1 %dense, %empty
  ret i1 %good
no:
  ret i1 false
}

; ``take`` for an array that an exchange reads.
define internal i1 @take_exchanged(ptr %exchange, ptr %object, ptr %parameter, ptr %view) {
entry:
  %tensor = alloca [${sizeof.dl_tensor} x i8], align 8
  %plain = call i1 @is_plain(ptr %exchange, ptr %object)
  br i1 %plain, label %read, label %no
read:
  %ok = call i1 @read_exchanged(ptr %exchange, ptr %object, ptr %tensor, ptr %view)
  br i1 %ok, label %compare, label %no
compare:
  %fits = call i1 @fits_tensor(ptr %tensor, ptr %parameter)
  ret i1 %fits
no:
  ret i1 false
}
