; Weights in a file of their own, which is mapped, or which the caller has in memory. Its head is
; ``weights`` in ``plan/interface.py``; what it is compared with, the seal, is the library's.
@seal = internal constant [32 x i8] c"${seal}"
declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @memcmp(ptr, ptr, i64)

define internal i32 @weights_take(ptr %instance, ptr %options) {
entry:
  %none = icmp eq ptr %options, null
  br i1 %none, label %missing, label %read
missing:
  ret i32 ${NO_WEIGHTS}
read:
  %memory_p = getelementptr i8, ptr %options, i64 ${options.weights}
  %memory = load ptr, ptr %memory_p
  %bytes_p = getelementptr i8, ptr %options, i64 ${options.weights_bytes}
  %bytes = load i64, ptr %bytes_p
  %in_memory = icmp ne ptr %memory, null
  br i1 %in_memory, label %alignment, label %file
alignment:
  %address = ptrtoint ptr %memory to i64
  %low = and i64 %address, ${low_bits}
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %given, label %misaligned
misaligned:
  ret i32 ${MISALIGNED}
given:
  %fits = call i32 @weights_use(ptr %instance, ptr %memory, i64 %bytes)
  ret i32 %fits
file:
  %path_p = getelementptr i8, ptr %options, i64 ${options.weights_path}
  %path = load ptr, ptr %path_p
  %unnamed = icmp eq ptr %path, null
  br i1 %unnamed, label %missing, label %open
open:
  %status = call i32 @weights_map(ptr %instance, ptr %path)
  ret i32 %status
}

; O_RDONLY | O_CLOEXEC; SEEK_END; PROT_READ, MAP_PRIVATE.
define internal i32 @weights_map(ptr %instance, ptr %path) {
entry:
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 524288)
  %closed = icmp slt i32 %file, 0
  br i1 %closed, label %missing, label %measure
missing:
  ret i32 ${NO_WEIGHTS}
measure:
  %bytes = call i64 @lseek(i32 %file, i64 0, i32 2)
  %some = icmp sge i64 %bytes, ${sizeof.weights}
  br i1 %some, label %map, label %short
short:
  %closed0 = call i32 @close(i32 %file)
  ret i32 ${NOT_WEIGHTS}
map:
  %memory = call ptr @mmap(ptr null, i64 %bytes, i32 1, i32 2, i32 %file, i64 0)
  %closed1 = call i32 @close(i32 %file)
  %address = ptrtoint ptr %memory to i64
  %failed = icmp eq i64 %address, -1
  br i1 %failed, label %missing, label %check
check:
  %status = call i32 @weights_use(ptr %instance, ptr %memory, i64 %bytes)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %keep, label %drop
keep:
  %mapped_p = getelementptr i8, ptr %instance, i64 ${instance.mapped}
  store ptr %memory, ptr %mapped_p
  %mapped_bytes_p = getelementptr i8, ptr %instance, i64 ${instance.mapped_bytes}
  store i64 %bytes, ptr %mapped_bytes_p
  ret i32 0
drop:
  %gone = call i32 @munmap(ptr %memory, i64 %bytes)
  ret i32 %status
}

define internal void @weights_drop(ptr %instance) {
entry:
  %mapped_p = getelementptr i8, ptr %instance, i64 ${instance.mapped}
  %mapped = load ptr, ptr %mapped_p
  %none = icmp eq ptr %mapped, null
  br i1 %none, label %done, label %unmap
unmap:
  %bytes_p = getelementptr i8, ptr %instance, i64 ${instance.mapped_bytes}
  %bytes = load i64, ptr %bytes_p
  %gone = call i32 @munmap(ptr %mapped, i64 %bytes)
  br label %done
done:
  ret void
}

; Check a whole file at an address, and take the weights in it.
define internal i32 @weights_use(ptr %instance, ptr %head, i64 %bytes) {
entry:
  %any = icmp uge i64 %bytes, ${sizeof.weights}
  br i1 %any, label %look, label %other_kind
look:
  %magic_p = getelementptr i8, ptr %head, i64 ${weights.magic}
  %magic = load i64, ptr %magic_p
  %ours = icmp eq i64 %magic, ${magic}
  br i1 %ours, label %dated, label %other_kind
other_kind:
  ret i32 ${NOT_WEIGHTS}
dated:
  %version_p = getelementptr i8, ptr %head, i64 ${weights.version}
  %version = load i64, ptr %version_p
  %same = icmp eq i64 %version, ${version}
  br i1 %same, label %sealed, label %other_version
other_version:
  ret i32 ${WEIGHTS_VERSION}
sealed:
  %seal_p = getelementptr i8, ptr %head, i64 ${weights.seal}
  %order = call i32 @memcmp(ptr %seal_p, ptr @seal, i64 32)
  %fits = icmp eq i32 %order, 0
  br i1 %fits, label %sized, label %other
other:
  ret i32 ${OTHER_WEIGHTS}
sized:
  %inside_p = getelementptr i8, ptr %head, i64 ${weights.bytes}
  %inside = load i64, ptr %inside_p
  %expected = icmp eq i64 %inside, ${weights_bytes}
  %whole = icmp eq i64 %bytes, ${file_bytes}
  %right = and i1 %expected, %whole
  br i1 %right, label %sum, label %damaged
damaged:
  ret i32 ${DAMAGED_WEIGHTS}
sum:
  %first = getelementptr i8, ptr %head, i64 ${begin}
  br label %next
next:
  %at = phi i64 [ 0, %sum ], [ %after, %add ]
  %a = phi i64 [ 0, %sum ], [ %a_after, %add ]
  %b = phi i64 [ 0, %sum ], [ %b_after, %add ]
  %more = icmp ult i64 %at, ${weights_bytes}
  br i1 %more, label %add, label %compare
add:
  %word_p = getelementptr i8, ptr %first, i64 %at
  %word = load i64, ptr %word_p
  %a_after = add i64 %a, %word
  %b_after = add i64 %b, %a_after
  %after = add i64 %at, 8
  br label %next
compare:
  %sum_p = getelementptr i8, ptr %head, i64 ${weights.sum}
  %a_told = load i64, ptr %sum_p
  %sums_p = getelementptr i8, ptr %head, i64 ${weights.sums}
  %b_told = load i64, ptr %sums_p
  %a_good = icmp eq i64 %a, %a_told
  %b_good = icmp eq i64 %b, %b_told
  %good = and i1 %a_good, %b_good
  br i1 %good, label %use, label %damaged
use:
  %constants_p = getelementptr i8, ptr %instance, i64 ${instance.constants}
  store ptr %first, ptr %constants_p
  ret i32 0
}
