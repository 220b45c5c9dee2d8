; Operands of matrix products of 128 threads in LLVM IR: read from shared memory, as their
; ``structs.LAYOUT`` says.

; An element of an operand as the type of the sums.
define internal i32 @element(ptr %at, i64 %kind, ptr %table) alwaysinline {
entry:
  switch i64 %kind, label %byte [ i64 ${element.BF16}, label %bf16 i64 ${element.F16}, label %f16
      i64 ${element.TF32}, label %tf32 ]
byte:
  %code = load i8, ptr %at, align 1
  %code64 = zext i8 %code to i64
  %word_p = getelementptr i32, ptr %table, i64 %code64
  %word = load i32, ptr %word_p
  ret i32 %word
bf16:
  %half = load i16, ptr %at, align 1
  %wide = zext i16 %half to i32
  %high = shl i32 %wide, 16
  ret i32 %high
f16:
  %short = load half, ptr %at, align 1
  %float = fpext half %short to float
  %bits = bitcast float %float to i32
  ret i32 %bits
tf32:
  %whole = load i32, ptr %at, align 1
  %cut = and i32 %whole, -8192
  ret i32 %cut
}

; Read an operand: element (row, k) goes to ``to[row * down + k * along]``.
define internal i1 @operand(ptr %to, i64 %down, i64 %along, i64 %rows, ptr %product, ptr %layout,
                            ptr %record, ptr %start, i64 %first, i64 %group) {
entry:
  %depth = call i64 @get(ptr %product, i64 ${product.depth})
  %size = call i64 @get(ptr %product, i64 ${product.bytes})
  %kind = call i64 @get(ptr %product, i64 ${product.kind})
  %table = call ptr @get_ptr(ptr %layout, i64 ${layout.table})
  %turned_n = call i64 @get(ptr %layout, i64 ${layout.turned})
  %swizzle = call i64 @get(ptr %layout, i64 ${layout.swizzle})
  %leading = call i64 @get(ptr %layout, i64 ${layout.leading})
  %stride = call i64 @get(ptr %layout, i64 ${layout.stride})
  %turned = icmp ne i64 %turned_n, 0
  %static = call ptr @get_ptr(ptr %record, i64 ${sim_record.static})
  %place = call i64 @get(ptr %static, i64 ${buffer.offset})
  %base = call i64 @get(ptr %record, i64 ${sim_record.base})
  %start_n = ptrtoint ptr %start to i64
  %from = sub i64 %start_n, %base
  %begin = add i64 %place, %from
  %zero = sub i64 %start_n, %begin
  %per = udiv i64 16, %size
  %lines = select i1 %turned, i64 %depth, i64 %rows
  %length = select i1 %turned, i64 %rows, i64 %depth
  %chunks = udiv i64 %length, %per
  %turns = lshr i64 %swizzle, 4
  br label %line
line:
  %d = phi i64 [ 0, %entry ], [ %d1, %line_done ]
  %eight = lshr i64 %d, 3
  %within = and i64 %d, 7
  %eight_at = mul i64 %eight, %stride
  %within_at = mul i64 %within, %swizzle
  br label %chunk
chunk:
  %c = phi i64 [ 0, %line ], [ %c1, %chunk_done ]
  %across = shl i64 %c, 4
  %panel = udiv i64 %across, %swizzle
  %rest = urem i64 %across, %swizzle
  %panel_at = mul i64 %panel, %leading
  %a1 = add i64 %begin, %panel_at
  %a2 = add i64 %a1, %rest
  %a3 = add i64 %a2, %eight_at
  %plain = add i64 %a3, %within_at
  %high = lshr i64 %plain, 7
  %turn = urem i64 %high, %turns
  %bits = shl i64 %turn, 4
  %there = xor i64 %plain, %bits
  %at_n = add i64 %zero, %there
  %at = inttoptr i64 %at_n to ptr
  %bad = call i1 @read_later(ptr %record, ptr %at, i64 16)
  br i1 %bad, label %fault, label %elements
elements:
  %read = call ptr @new_read(i64 %first, i64 ${read.OPERAND}, i64 %group, ptr %record, ptr %at,
                             i64 16)
  %c_first = mul i64 %c, %per
  br label %one
one:
  %j = phi i64 [ 0, %elements ], [ %j1, %one ]
  %l = add i64 %c_first, %j
  %row = select i1 %turned, i64 %l, i64 %d
  %k = select i1 %turned, i64 %d, i64 %l
  %j_at = mul i64 %j, %size
  %element_p = getelementptr i8, ptr %at, i64 %j_at
  %word = call i32 @element(ptr %element_p, i64 %kind, ptr %table)
  %row_at = mul i64 %row, %down
  %k_at = mul i64 %k, %along
  %to_at = add i64 %row_at, %k_at
  %to_p = getelementptr i32, ptr %to, i64 %to_at
  store i32 %word, ptr %to_p
  %j1 = add i64 %j, 1
  %more_j = icmp ult i64 %j1, %per
  br i1 %more_j, label %one, label %chunk_done
chunk_done:
  %c1 = add i64 %c, 1
  %more_c = icmp ult i64 %c1, %chunks
  br i1 %more_c, label %chunk, label %line_done
line_done:
  %d1 = add i64 %d, 1
  %more_d = icmp ult i64 %d1, %lines
  br i1 %more_d, label %line, label %out
out:
  ret i1 false
fault:
  ret i1 true
}
