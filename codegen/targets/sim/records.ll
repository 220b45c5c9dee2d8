; The records of a launch's buffers in LLVM IR: where each lies, and the cells of its shadow.
;
; Shared memory has one shadow for the whole block. Arguments that lie in the same place, as an
; output made in place of an input does, share theirs.

; All records, in order.
define internal void @open_records(ptr %launch, ptr %args) {
entry:
  %count = call i64 @field(ptr %launch, i64 ${launch.count})
  %table_n = call i64 @field(ptr %launch, i64 ${launch.buffers})
  %table = inttoptr i64 %table_n to ptr
  %each = mul i64 %count, ${sizeof.sim_record}
  %ranks = load i64, ptr @ranks
  %bytes = mul i64 %each, %ranks
  %records = call ptr @nw_scratch(i64 %bytes)
  %records_n = ptrtoint ptr %records to i64
  call void @set_field(ptr @sim, i64 ${sim.buffers}, i64 %records_n)
  %shared_n = call i64 @field(ptr @sim, i64 ${sim.shared})
  %shared_cells = call ptr @shared_cells(ptr %launch)
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %static = getelementptr [${sizeof.buffer} x i8], ptr %table, i64 %i
  %record = getelementptr [${sizeof.sim_record} x i8], ptr %records, i64 %i
  %static_n = ptrtoint ptr %static to i64
  %arg = call i64 @field(ptr %static, i64 ${buffer.arg})
  %offset = call i64 @field(ptr %static, i64 ${buffer.offset})
  %size = call i64 @field(ptr %static, i64 ${buffer.bytes})
  %shadowed = call i64 @field(ptr %static, i64 ${buffer.shadowed})
  call void @set_field(ptr %record, i64 ${sim_record.static}, i64 %static_n)
  call void @set_field(ptr %record, i64 ${sim_record.bytes}, i64 %size)
  %is_shared = icmp slt i64 %arg, 0
  br i1 %is_shared, label %shared, label %global
shared:
  %granule = call i64 @field(ptr %launch, i64 ${launch.granule})
  %base_s = add i64 %shared_n, %offset
  %first = lshr i64 %offset, %granule
  %skip = mul i64 %first, ${sizeof.cell}
  %cells_s = getelementptr i8, ptr %shared_cells, i64 %skip
  %none = icmp eq ptr %shared_cells, null
  %cells_k = select i1 %none, ptr null, ptr %cells_s
  %cells_sn = ptrtoint ptr %cells_k to i64
  call void @set_field(ptr %record, i64 ${sim_record.base}, i64 %base_s)
  call void @set_field(ptr %record, i64 ${sim_record.cells}, i64 %cells_sn)
  call void @set_field(ptr %record, i64 ${sim_record.shift}, i64 %granule)
  %start = ptrtoint ptr @block_start to i64
  call void @set_field(ptr %record, i64 ${sim_record.others}, i64 %start)
  br label %next
global:
  %slot = getelementptr ptr, ptr %args, i64 %arg
  %from = load i64, ptr %slot
  %base_g = add i64 %from, %offset
  %shift = call i64 @field(ptr %static, i64 ${buffer.shift})
  call void @set_field(ptr %record, i64 ${sim_record.base}, i64 %base_g)
  call void @set_field(ptr %record, i64 ${sim_record.cells}, i64 0)
  call void @set_field(ptr %record, i64 ${sim_record.shift}, i64 %shift)
  %begin = ptrtoint ptr @launch_start to i64
  call void @set_field(ptr %record, i64 ${sim_record.others}, i64 %begin)
  %wanted = icmp ne i64 %shadowed, 0
  br i1 %wanted, label %watch, label %next
watch:
  %known = call i64 @cells_of(ptr %records, i64 %i, i64 %base_g)
  %have = icmp ne i64 %known, 0
  br i1 %have, label %keep, label %make
make:
  %granules = lshr i64 %size, %shift
  %made = call ptr @calloc(i64 %granules, i64 ${sizeof.cell})
  %made_n = ptrtoint ptr %made to i64
  br label %keep
keep:
  %cells = phi i64 [ %known, %watch ], [ %made_n, %make ]
  call void @set_field(ptr %record, i64 ${sim_record.cells}, i64 %cells)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %test
out:
  ret void
}

define internal ptr @shared_cells(ptr %launch) {
entry:
  %bytes = call i64 @all_shared_bytes(ptr %launch)
  %granule = call i64 @field(ptr %launch, i64 ${launch.granule})
  %off = icmp slt i64 %granule, 0
  br i1 %off, label %no, label %yes
no:
  ret ptr null
yes:
  %count = lshr i64 %bytes, %granule
  %size = mul i64 %count, ${sizeof.cell}
  %cells = call ptr @nw_scratch(i64 %size)
  call void @llvm.memset.p0.i64(ptr %cells, i8 0, i64 %size, i1 false)
  ret ptr %cells
}

; The cells of an earlier record of arguments' memory at the same address.
define internal i64 @cells_of(ptr %records, i64 %count, i64 %base) {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %none
one:
  %record = getelementptr [${sizeof.sim_record} x i8], ptr %records, i64 %i
  %other = call i64 @field(ptr %record, i64 ${sim_record.base})
  %same = icmp eq i64 %other, %base
  br i1 %same, label %found, label %next
found:
  %cells = call i64 @field(ptr %record, i64 ${sim_record.cells})
  %some = icmp ne i64 %cells, 0
  br i1 %some, label %take, label %next
take:
  ret i64 %cells
next:
  %i1 = add i64 %i, 1
  br label %test
none:
  ret i64 0
}

define internal void @close_records(ptr %launch) {
entry:
  %count = call i64 @field(ptr %launch, i64 ${launch.count})
  %table_n = call i64 @field(ptr %launch, i64 ${launch.buffers})
  %table = inttoptr i64 %table_n to ptr
  %records_n = call i64 @field(ptr @sim, i64 ${sim.buffers})
  %records = inttoptr i64 %records_n to ptr
  br label %test
test:
  %left = phi i64 [ %count, %entry ], [ %i, %next ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %one, label %out
one:
  %i = sub i64 %left, 1
  %static = getelementptr [${sizeof.buffer} x i8], ptr %table, i64 %i
  %record = getelementptr [${sizeof.sim_record} x i8], ptr %records, i64 %i
  %arg = call i64 @field(ptr %static, i64 ${buffer.arg})
  %is_global = icmp sge i64 %arg, 0
  br i1 %is_global, label %look, label %next
look:
  %base = call i64 @field(ptr %record, i64 ${sim_record.base})
  %own_n = call i64 @field(ptr %record, i64 ${sim_record.cells})
  %earlier = call i64 @cells_of(ptr %records, i64 %i, i64 %base)
  %shared = icmp eq i64 %earlier, %own_n
  br i1 %shared, label %next, label %drop
drop:
  %own = inttoptr i64 %own_n to ptr
  call void @free(ptr %own)
  br label %next
next:
  br label %test
out:
  ret void
}
