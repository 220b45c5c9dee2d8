; The functions of a C library in LLVM IR; see ``instance.py``. An instance begins with its pool;
; then come the fields of ``instance``, and at the next multiple of 64 bytes the arena.
@statuses = internal constant ${statuses}
@inputs = internal constant ${inputs}
@outputs = internal constant ${outputs}
declare i32 @nw_program(ptr, ptr, ptr, ptr)
declare void @llvm.memset.p0.i32(ptr, i8, i32, i1)

define i32 @${prefix}_create(ptr %out, ptr %options) {
entry:
  %slot = alloca ptr
  %none = icmp eq ptr %out, null
  br i1 %none, label %bad, label %make
bad:
  ret i32 ${BAD_ARGUMENT}
make:
  store ptr null, ptr %out
  %status = call i32 @posix_memalign(ptr %slot, i64 ${made_alignment}, i64 ${memory_bytes})
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %made, label %no_memory
no_memory:
  ret i32 ${NO_MEMORY}
made:
  %memory = load ptr, ptr %slot
  br i1 ${huge}, label %huge, label %init
huge:
  call void @huge_pages(ptr %memory, i64 ${memory_bytes})
  br label %init
init:
  %begun = call i32 @${prefix}_init(ptr %out, ptr %memory, i64 ${memory_bytes}, ptr %options)
  %good = icmp eq i32 %begun, 0
  br i1 %good, label %own, label %drop
own:
  %instance = getelementptr i8, ptr %memory, i64 ${sizeof.pool}
  %owned_p = getelementptr i8, ptr %instance, i64 ${instance.owned}
  store ptr %memory, ptr %owned_p
  ret i32 0
drop:
  call void @free(ptr %memory)
  ret i32 %begun
}

define i32 @${prefix}_init(ptr %out, ptr %memory, i64 %bytes, ptr %options) {
entry:
  %no_out = icmp eq ptr %out, null
  br i1 %no_out, label %bad, label %clear
bad:
  ret i32 ${BAD_ARGUMENT}
clear:
  store ptr null, ptr %out
  %fits_here = call i1 @processor_fits()
  br i1 %fits_here, label %memory_given, label %wrong_processor
wrong_processor:
  ret i32 ${WRONG_PROCESSOR}
memory_given:
  %no_memory = icmp eq ptr %memory, null
  br i1 %no_memory, label %bad, label %alignment
alignment:
  %address = ptrtoint ptr %memory to i64
  %low = and i64 %address, ${low_bits}
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %room, label %misaligned
misaligned:
  ret i32 ${MISALIGNED}
room:
  %enough = icmp uge i64 %bytes, ${memory_bytes}
  br i1 %enough, label %look, label %too_small
too_small:
  ret i32 ${TOO_SMALL}
look:
  %plain = icmp eq ptr %options, null
  br i1 %plain, label %threads, label %read
read:
  %given_p = getelementptr i8, ptr %options, i64 ${options.threads}
  %given = load i32, ptr %given_p
  br label %threads
threads:
  %asked = phi i32 [ 0, %look ], [ %given, %read ]
  %usual = icmp eq i32 %asked, 0
  %count = select i1 %usual, i32 ${threads}, i32 %asked
  %others = sub i32 %count, 1
  %fits = icmp ult i32 %others, ${most_threads}
  br i1 %fits, label %fill, label %bad_threads
bad_threads:
  ret i32 ${BAD_THREADS}
fill:
  call void @llvm.memset.p0.i32(ptr %memory, i8 0, i32 ${arena_offset}, i1 false)
  %threads_p = getelementptr i8, ptr %memory, i64 ${pool.threads}
  store atomic i32 %count, ptr %threads_p seq_cst, align 4
  %instance = getelementptr i8, ptr %memory, i64 ${sizeof.pool}
  %arena_p = getelementptr i8, ptr %instance, i64 ${instance.arena}
  %arena = getelementptr i8, ptr %memory, i64 ${arena_offset}
  store ptr %arena, ptr %arena_p
  %status = call i32 @weights_take(ptr %instance, ptr %options)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %give, label %done
give:
  store ptr %memory, ptr %out
  br label %done
done:
  ret i32 %status
}

define void @${prefix}_destroy(ptr %memory) {
entry:
  %none = icmp eq ptr %memory, null
  br i1 %none, label %done, label %end
end:
  call void @pool_end(ptr %memory)
  %instance = getelementptr i8, ptr %memory, i64 ${sizeof.pool}
  %scratch_p = getelementptr i8, ptr %instance, i64 ${instance.scratch}
  %scratch = load ptr, ptr %scratch_p
  call void @scratch_free(ptr %scratch)
  call void @weights_drop(ptr %instance)
  %owned_p = getelementptr i8, ptr %instance, i64 ${instance.owned}
  %owned = load ptr, ptr %owned_p
  call void @free(ptr %owned)
  br label %done
done:
  ret void
}

; Is there a pointer to every array that has any elements?
define internal i1 @given(ptr %pointers, ptr %tensors, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %yes
one:
  %tensor = getelementptr [${sizeof.tensor} x i8], ptr %tensors, i64 %i
  %bytes_p = getelementptr i8, ptr %tensor, i64 ${tensor.bytes}
  %bytes = load i64, ptr %bytes_p
  %empty = icmp eq i64 %bytes, 0
  %pointer_p = getelementptr ptr, ptr %pointers, i64 %i
  %pointer = load ptr, ptr %pointer_p
  %there = icmp ne ptr %pointer, null
  %good = or i1 %empty, %there
  %after = add i64 %i, 1
  br i1 %good, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

define i32 @${prefix}_run(ptr %memory, ptr %params, ptr %results) {
entry:
  %own = alloca [${sizeof.seat} x i8], align 8
  %none0 = icmp eq ptr %memory, null
  %none1 = icmp eq ptr %params, null
  %none2 = icmp eq ptr %results, null
  %none01 = or i1 %none0, %none1
  %none = or i1 %none01, %none2
  br i1 %none, label %bad, label %look
bad:
  ret i32 ${BAD_ARGUMENT}
look:
  %all_in = call i1 @given(ptr %params, ptr @inputs, i64 ${inputs_count})
  %all_out = call i1 @given(ptr %results, ptr @outputs, i64 ${outputs_count})
  %all = and i1 %all_in, %all_out
  br i1 %all, label %take, label %bad
take:
  %instance = getelementptr i8, ptr %memory, i64 ${sizeof.pool}
  %busy_p = getelementptr i8, ptr %instance, i64 ${instance.busy}
  %pair = cmpxchg ptr %busy_p, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %sit, label %busy
busy:
  ret i32 ${BUSY}
sit:
  %pool_p = getelementptr i8, ptr %own, i64 ${seat.pool}
  store ptr %memory, ptr %pool_p
  %scratch_p = getelementptr i8, ptr %instance, i64 ${instance.scratch}
  %scratch = load ptr, ptr %scratch_p
  %held_p = getelementptr i8, ptr %own, i64 ${seat.scratch}
  store ptr %scratch, ptr %held_p
  %before = load ptr, ptr @seat
  store ptr %own, ptr @seat
  %arena_p = getelementptr i8, ptr %instance, i64 ${instance.arena}
  %arena = load ptr, ptr %arena_p
  %constants_p = getelementptr i8, ptr %instance, i64 ${instance.constants}
  %constants = load ptr, ptr %constants_p
  %status = call i32 @nw_program(ptr %params, ptr %results, ptr %arena, ptr %constants)
  call void @nw_scratch_release(i64 0)
  %held = load ptr, ptr %held_p
  store ptr %held, ptr %scratch_p
  store ptr %before, ptr @seat
  store atomic i32 0, ptr %busy_p release, align 4
  ret i32 %status
}

define ptr @${prefix}_input(i64 %number) {
  %there = icmp ult i64 %number, ${inputs_count}
  %tensor = getelementptr [${sizeof.tensor} x i8], ptr @inputs, i64 %number
  %found = select i1 %there, ptr %tensor, ptr null
  ret ptr %found
}

define ptr @${prefix}_output(i64 %number) {
  %there = icmp ult i64 %number, ${outputs_count}
  %tensor = getelementptr [${sizeof.tensor} x i8], ptr @outputs, i64 %number
  %found = select i1 %there, ptr %tensor, ptr null
  ret ptr %found
}

define ptr @${prefix}_message(i32 %status) {
entry:
  %known = icmp ult i32 %status, ${statuses_count}
  br i1 %known, label %yes, label %no
yes:
  %text_p = getelementptr ptr, ptr @statuses, i32 %status
  %text = load ptr, ptr %text_p
  ret ptr %text
no:
  ret ptr @unknown
}
