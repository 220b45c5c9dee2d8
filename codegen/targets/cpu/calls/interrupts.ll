; Asking for signals from native code, in LLVM IR; see ``interrupts.py``.
target triple = "${triple}"

@key = internal global i64 0
@arrived = internal global i32 0, align 64
@interrupts = internal global i32 0
@watched = internal global i32 0
@checked = internal global i32 0 ; what @arrived was when the main thread asked Python last
@main = internal global i64 0
@current = internal global ptr null
@adopt = internal global ptr null
@elsewhere = internal global ptr null
@previous = internal global [32 x ptr] zeroinitializer
@foreign = internal global [32 x ptr] zeroinitializer
declare i32 @pthread_key_create(ptr, ptr)
declare i64 @pthread_self()
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @clock_gettime(i32, ptr)
declare ptr @PyThreadState_Get()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_DecRef(ptr)
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)

define void @nw_signals_init(i32 %watched, ptr %current, ptr %adopt, ptr %elsewhere) {
  %status = call i32 @pthread_key_create(ptr @key, ptr null)
  store ptr %current, ptr @current
  store ptr %adopt, ptr @adopt
  store ptr %elsewhere, ptr @elsewhere
  store i32 %watched, ptr @watched
  ret void
}

define void @nw_signals_main(i64 %thread) {
  store i64 %thread, ptr @main
  ret void
}

define i32 @nw_interrupts() {
  %count = load atomic i32, ptr @interrupts monotonic, align 4
  ret i32 %count
}

; struct sigaction begins with the handler on Linux and macOS; it has at most 152 bytes.

; Pass the signal on first: who sees the counters change finds Python told.
define internal void @on_signal(i32 %number, ptr %info, ptr %context) {
entry:
  %index = zext i32 %number to i64
  %slot = getelementptr ptr, ptr @previous, i64 %index
  %handler = load atomic ptr, ptr %slot monotonic, align 8
  call void %handler(i32 %number, ptr %info, ptr %context)
  %is_interrupt = icmp eq i32 %number, 2
  %one = zext i1 %is_interrupt to i32
  %interrupts = atomicrmw add ptr @interrupts, i32 %one monotonic
  %arrived = atomicrmw add ptr @arrived, i32 1 release
  ret void
}

; The handler of a signal, into a struct sigaction; null where it is default, ignored or ours.
define internal ptr @handler_of(i32 %number, ptr %action) {
  store ptr null, ptr %action
  %status = call i32 @sigaction(i32 %number, ptr null, ptr %action)
  %handler = load ptr, ptr %action
  %bits = ptrtoint ptr %handler to i64
  %some = add i64 %bits, 1
  %none = icmp ult i64 %some, 3
  %ours = icmp eq ptr %handler, @on_signal
  %skip = or i1 %none, %ours
  %found = select i1 %skip, ptr null, ptr %handler
  ret ptr %found
}

define i1 @nw_unwatched(i32 %number) {
  %action = alloca [512 x i8], align 16
  %handler = call ptr @handler_of(i32 %number, ptr %action)
  %some = icmp ne ptr %handler, null
  %index = zext i32 %number to i64
  %slot = getelementptr ptr, ptr @foreign, i64 %index
  %known = load ptr, ptr %slot
  %unknown = icmp ne ptr %known, %handler
  %both = and i1 %some, %unknown
  ret i1 %both
}

; Mask and flags stay as they are.
define void @nw_watch(i32 %number) {
entry:
  %action = alloca [512 x i8], align 16
  %handler = call ptr @handler_of(i32 %number, ptr %action)
  %none = icmp eq ptr %handler, null
  br i1 %none, label %done, label %replace
replace:
  %index = zext i32 %number to i64
  %slot = getelementptr ptr, ptr @previous, i64 %index
  store atomic ptr %handler, ptr %slot release, align 8
  store ptr @on_signal, ptr %action
  %status = call i32 @sigaction(i32 %number, ptr %action, ptr null)
  br label %done
done:
  ret void
}

define void @nw_ignore(i32 %number) {
  %action = alloca [512 x i8], align 16
  %handler = call ptr @handler_of(i32 %number, ptr %action)
  %index = zext i32 %number to i64
  %slot = getelementptr ptr, ptr @foreign, i64 %index
  store ptr %handler, ptr %slot
  ret void
}

; Has any signal that is to be watched a handler that we do not know?
define internal i1 @any_unwatched() noinline {
entry:
  %watched = load i32, ptr @watched
  br label %next
next:
  %number = phi i32 [ 1, %entry ], [ %after, %pass ]
  %bit = shl i32 1, %number
  %wanted = and i32 %watched, %bit
  %is = icmp ne i32 %wanted, 0
  br i1 %is, label %look, label %pass
look:
  %unknown = call i1 @nw_unwatched(i32 %number)
  br i1 %unknown, label %yes, label %pass
pass:
  %after = add i32 %number, 1
  %more = icmp ult i32 %after, 32
  br i1 %more, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

define ptr @nw_record() {
  %key = load i64, ptr @key
  %record = call ptr @pthread_getspecific(i64 %key)
  ret ptr %record
}

define internal void @set_record(ptr %record) {
  %key = load i64, ptr @key
  %status = call i32 @pthread_setspecific(i64 %key, ptr %record)
  ret void
}

; A record with its lowest bit set is another thread's: only its flag is read.
define void @nw_lend(ptr %record) {
  %none = icmp eq ptr %record, null
  %marked = getelementptr i8, ptr %record, i64 1
  %kept = select i1 %none, ptr null, ptr %marked
  call void @set_record(ptr %kept)
  ret void
}

; Ask Python for signals that wait for their handlers, and note that those counted so far do not any
; more. The counter is read before: what comes later is seen by a poll.
define internal i32 @handle() noinline {
entry:
  %seen = load atomic i32, ptr @arrived acquire, align 4
  %status = call i32 @PyErr_CheckSignals()
  %self = call i64 @pthread_self()
  %main = load i64, ptr @main
  %is_main = icmp eq i64 %self, %main
  br i1 %is_main, label %note, label %out
note:
  store i32 %seen, ptr @checked
  br label %out
out:
  ret i32 %status
}

; Python looks for signals only now and then, so that one may be waiting.
define i32 @nw_enter(ptr %record) {
entry:
  %seen = load atomic i32, ptr @arrived acquire, align 4
  %interrupts = load atomic i32, ptr @interrupts monotonic, align 4
  %checked = load i32, ptr @checked
  %none = icmp eq i32 %seen, %checked
  br i1 %none, label %begin, label %ask
ask:
  %status = call i32 @handle()
  %raised = icmp slt i32 %status, 0
  br i1 %raised, label %no, label %begin
begin:
  %seen_p = getelementptr i8, ptr %record, i64 ${record.seen}
  %next_p = getelementptr i8, ptr %record, i64 ${record.next}
  %outer_p = getelementptr i8, ptr %record, i64 ${record.outer}
  %interrupts_p = getelementptr i8, ptr %record, i64 ${record.interrupts}
  %outer = call ptr @nw_record()
  %stop_p = getelementptr i8, ptr %record, i64 ${record.stop}
  store i32 0, ptr %stop_p
  store i32 %seen, ptr %seen_p
  store i64 0, ptr %next_p
  store ptr %outer, ptr %outer_p
  store i32 %interrupts, ptr %interrupts_p
  call void @set_record(ptr %record)
  ret i32 0
no:
  ret i32 -1
}

define i32 @nw_leave(ptr %record) {
entry:
  %outer_p = getelementptr i8, ptr %record, i64 ${record.outer}
  %outer = load ptr, ptr %outer_p
  call void @set_record(ptr %outer)
  %stop_p = getelementptr i8, ptr %record, i64 ${record.stop}
  %stop = load i32, ptr %stop_p
  %ended = icmp ne i32 %stop, 0
  br i1 %ended, label %raise, label %done
raise:
  %type_p = getelementptr i8, ptr %record, i64 ${record.type}
  %value_p = getelementptr i8, ptr %record, i64 ${record.value}
  %traceback_p = getelementptr i8, ptr %record, i64 ${record.traceback}
  %type = load ptr, ptr %type_p
  %value = load ptr, ptr %value_p
  %traceback = load ptr, ptr %traceback_p
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %traceback)
  ret i32 1
done:
  ret i32 0
}

define ptr @nw_guarded(ptr %self, ptr %args, i64 %count, ptr %names) {
entry:
  %record = alloca [${sizeof.record} x i8], align 8
  %thread_p = getelementptr i8, ptr %record, i64 ${record.thread}
  %thread = call ptr @PyThreadState_Get()
  store ptr %thread, ptr %thread_p
  %entered = call i32 @nw_enter(ptr %record)
  %waiting = icmp slt i32 %entered, 0
  br i1 %waiting, label %none, label %go
go:
  %function = load ptr, ptr %args
  %rest = getelementptr ptr, ptr %args, i64 1
  %less = sub i64 %count, 1
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %rest, i64 %less, ptr %names)
  %left = call i32 @nw_leave(ptr %record)
  %ended = icmp ne i32 %left, 0
  br i1 %ended, label %drop, label %done
drop:
  %some = icmp ne ptr %answer, null
  br i1 %some, label %release, label %none
release:
  call void @Py_DecRef(ptr %answer)
  br label %none
done:
  ret ptr %answer
none:
  ret ptr null
}

define internal i64 @now() {
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 6, ptr %time) ; Linux: the coarse clock; macOS: monotonic
  %seconds = load i64, ptr %time
  %rest_p = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_p
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}

; Call a Python function without arguments. False, with an exception set, if it raised.
define internal i1 @call(ptr %function) {
entry:
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr null, i64 0, ptr null)
  %good = icmp ne ptr %answer, null
  br i1 %good, label %drop, label %out
drop:
  call void @Py_DecRef(ptr %answer)
  br label %out
out:
  ret i1 %good
}

; Let Python handle what arrived; first put our handlers in place if they are not. What a handler
; raises ends the call. While they run, the record is not the thread's: they may make calls. Nothing
; is done where the thread holds the GIL: it polls for what Python code does inside the call.
define internal i1 @attend(ptr %record, i1 %adopting) noinline cold {
entry:
  %stop_p = getelementptr i8, ptr %record, i64 ${record.stop}
  %seen_p = getelementptr i8, ptr %record, i64 ${record.seen}
  %interrupts_p = getelementptr i8, ptr %record, i64 ${record.interrupts}
  %thread_p = getelementptr i8, ptr %record, i64 ${record.thread}
  %type_p = getelementptr i8, ptr %record, i64 ${record.type}
  %value_p = getelementptr i8, ptr %record, i64 ${record.value}
  %traceback_p = getelementptr i8, ptr %record, i64 ${record.traceback}
  %thread = load ptr, ptr %thread_p
  %current_f = load ptr, ptr @current
  %holder = call ptr %current_f()
  %holds = icmp eq ptr %holder, %thread
  br i1 %holds, label %not_now, label %begin
not_now:
  ret i1 false
begin:
  call void @set_record(ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  br i1 %adopting, label %adopt, label %look
adopt:
  %adopt_f = load ptr, ptr @adopt
  %adopted = call i1 @call(ptr %adopt_f)
  br i1 %adopted, label %look, label %raised
look:
  %seen = load atomic i32, ptr @arrived acquire, align 4
  store i32 %seen, ptr %seen_p
  %count = load atomic i32, ptr @interrupts monotonic, align 4
  %status = call i32 @handle()
  %bad = icmp slt i32 %status, 0
  br i1 %bad, label %raised, label %others
others: ; on other threads than the main one, Python runs no handlers
  %known = load i32, ptr %interrupts_p
  store i32 %count, ptr %interrupts_p
  %same = icmp eq i32 %known, %count
  br i1 %same, label %back, label %ask
ask:
  %elsewhere_f = load ptr, ptr @elsewhere
  %goes_on = call i1 @call(ptr %elsewhere_f)
  br i1 %goes_on, label %back, label %raised
raised:
  call void @PyErr_Fetch(ptr %type_p, ptr %value_p, ptr %traceback_p)
  store atomic i32 1, ptr %stop_p release, align 4
  br label %back
back:
  %saved = call ptr @PyEval_SaveThread()
  call void @set_record(ptr %record)
  %stop = load i32, ptr %stop_p
  %ended = icmp ne i32 %stop, 0
  ret i1 %ended
}

define i1 @nw_poll() {
entry:
  %marked = call ptr @nw_record()
  %record = call ptr @llvm.ptrmask.p0.i64(ptr %marked, i64 -2)
  %none = icmp eq ptr %record, null
  br i1 %none, label %go_on, label %look
look:
  %stop_p = getelementptr i8, ptr %record, i64 ${record.stop}
  %stop = load atomic i32, ptr %stop_p monotonic, align 4
  %ended = icmp ne i32 %stop, 0
  br i1 %ended, label %end, label %whose
whose:
  %own = icmp eq ptr %marked, %record
  br i1 %own, label %count, label %go_on
count:
  %seen_p = getelementptr i8, ptr %record, i64 ${record.seen}
  %seen = load i32, ptr %seen_p
  %arrived = load atomic i32, ptr @arrived acquire, align 4
  %quiet = icmp eq i32 %seen, %arrived
  br i1 %quiet, label %clock, label %attend
attend:
  %told = call i1 @attend(ptr %record, i1 false)
  ret i1 %told
clock:
  %next_p = getelementptr i8, ptr %record, i64 ${record.next}
  %next = load i64, ptr %next_p
  %now = call i64 @now()
  %due = icmp sge i64 %now, %next
  br i1 %due, label %verify, label %go_on
verify: ; at the first poll of a call only the time is noted
  %later = add i64 %now, ${period}
  store i64 %later, ptr %next_p
  %first = icmp eq i64 %next, 0
  br i1 %first, label %go_on, label %handlers
handlers:
  %unknown = call i1 @any_unwatched()
  br i1 %unknown, label %adopt, label %go_on
adopt:
  %raised = call i1 @attend(ptr %record, i1 true)
  ret i1 %raised
end:
  ret i1 true
go_on:
  ret i1 false
}
