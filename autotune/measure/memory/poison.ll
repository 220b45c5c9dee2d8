; Fills stacks and scratch memory with a pattern, and watches red zones; see ``poison.py``.
; The scratch blocks of a thread are a linked list, the newest first, each with a header.
target triple = "${triple}"

@pattern = internal global i8 0
@damaged = internal global i32 0
@newest = internal global i64 0
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @nw_parallel(ptr, ptr, i64)
declare ptr @nw_scratch(i64)
declare i64 @nw_scratch_mark()
declare void @nw_scratch_release(i64)

define i32 @poison_init() {
  %status = call i32 @pthread_key_create(ptr @newest, ptr null)
  ret i32 %status
}

; From now on memory is filled with this byte, and none is damaged.
define void @poison_begin(i8 %byte) {
  store i8 %byte, ptr @pattern
  store atomic i32 0, ptr @damaged seq_cst, align 4
  ret void
}

define i32 @poison_damaged() {
  %found = load atomic i32, ptr @damaged seq_cst, align 4
  ret i32 %found
}

; It saves no registers and calls nothing, so what the caller calls next finds its whole frame full.
define void @poison_stack() noinline {
entry:
  %area = alloca [${words} x i64], align 8
  %byte = load i8, ptr @pattern
  %wide = zext i8 %byte to i64
  %word = mul i64 %wide, 72340172838076673
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %next ]
  %at = getelementptr i64, ptr %area, i64 %i
  store volatile i64 %word, ptr %at, align 8
  %after = add i64 %i, 1
  %more = icmp ult i64 %after, ${words}
  br i1 %more, label %next, label %done
done:
  ret void
}

define void @poisoned_parallel(ptr %body, ptr %context, i64 %count) {
  %pair = alloca [2 x ptr], align 8
  %second = getelementptr ptr, ptr %pair, i64 1
  store ptr %body, ptr %pair
  store ptr %context, ptr %second
  call void @nw_parallel(ptr @poisoned_body, ptr %pair, i64 %count)
  ret void
}

define internal void @poisoned_body(ptr %pair, i64 %begin, i64 %end) {
  %second = getelementptr ptr, ptr %pair, i64 1
  %body = load ptr, ptr %pair
  %context = load ptr, ptr %second
  %mark = call i64 @nw_scratch_mark()
  call void @poison_stack()
  call void %body(ptr %context, i64 %begin, i64 %end)
  call void @poisoned_release(i64 %mark)
  ret void
}

define ptr @poisoned_scratch(i64 %bytes) {
  %mark = call i64 @nw_scratch_mark()
  %whole = call i64 @whole(i64 %bytes)
  %block = call ptr @nw_scratch(i64 %whole)
  %byte = load i8, ptr @pattern
  call void @llvm.memset.p0.i64(ptr %block, i8 %byte, i64 %whole, i1 false)
  %key = load i64, ptr @newest
  %before = call ptr @pthread_getspecific(i64 %key)
  %mark_p = getelementptr i8, ptr %block, i64 ${block.mark}
  %bytes_p = getelementptr i8, ptr %block, i64 ${block.bytes}
  %previous_p = getelementptr i8, ptr %block, i64 ${block.previous}
  store ptr %before, ptr %previous_p
  store i64 %mark, ptr %mark_p
  store i64 %bytes, ptr %bytes_p
  %status = call i32 @pthread_setspecific(i64 %key, ptr %block)
  %memory = getelementptr i8, ptr %block, i64 ${zone}
  ret ptr %memory
}

define internal i64 @whole(i64 %bytes) {
  %padded = add i64 %bytes, ${padding}
  %whole = and i64 %padded, -${zone}
  ret i64 %whole
}

; Look at the bytes of a block from one to another: all must hold the pattern.
define internal void @look(ptr %block, i64 %begin, i64 %end) {
entry:
  %byte = load i8, ptr @pattern
  br label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %after, %same ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %compare, label %done
compare:
  %at = getelementptr i8, ptr %block, i64 %i
  %found = load i8, ptr %at
  %equal = icmp eq i8 %found, %byte
  br i1 %equal, label %same, label %bad
same:
  %after = add i64 %i, 1
  br label %next
bad:
  store atomic i32 1, ptr @damaged seq_cst, align 4
  ret void
done:
  ret void
}

define void @poisoned_release(i64 %mark) {
entry:
  %key = load i64, ptr @newest
  br label %next
next:
  %block = call ptr @pthread_getspecific(i64 %key)
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %mark_p = getelementptr i8, ptr %block, i64 ${block.mark}
  %given = load i64, ptr %mark_p
  %older = icmp ult i64 %given, %mark
  br i1 %older, label %done, label %back
back:
  %bytes_p = getelementptr i8, ptr %block, i64 ${block.bytes}
  %bytes = load i64, ptr %bytes_p
  %whole = call i64 @whole(i64 %bytes)
  %behind = add i64 %bytes, ${zone}
  call void @look(ptr %block, i64 ${sizeof.block}, i64 ${zone})
  call void @look(ptr %block, i64 %behind, i64 %whole)
  %previous_p = getelementptr i8, ptr %block, i64 ${block.previous}
  %before = load ptr, ptr %previous_p
  %status = call i32 @pthread_setspecific(i64 %key, ptr %before)
  br label %next
done:
  call void @nw_scratch_release(i64 %mark)
  ret void
}
