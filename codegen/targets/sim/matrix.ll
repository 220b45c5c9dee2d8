; Warp operations in LLVM IR: ``ldmatrix``, ``stmatrix``, reductions across threads; see
; ``matrix.py``.

define internal ptr @slot(ptr %slots, i64 %stride, i64 %thread, i64 %offset) alwaysinline {
  %at = mul i64 %thread, %stride
  %both = add i64 %at, %offset
  %slot_p = getelementptr i8, ptr %slots, i64 %both
  %slot = load ptr, ptr %slot_p
  ret ptr %slot
}

; Where element ``half`` of word ``w`` of a lane lies in a row: see intrinsics.ldmatrix_source.
; Slots: the lane's words, its row.
define internal ptr @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 %half,
                                    i1 %trans) alwaysinline {
  %row = lshr i64 %lane, 2
  %four = and i64 %lane, 3
  %two = shl i64 %four, 1
  %column = add i64 %two, %half
  %whose = select i1 %trans, i64 %column, i64 %row
  %which = select i1 %trans, i64 %row, i64 %column
  %first = shl i64 %w, 3
  %source = add i64 %first, %whose
  %from = call ptr @slot(ptr %slots, i64 %stride, i64 %source, i64 8)
  %element_p = getelementptr i16, ptr %from, i64 %which
  ret ptr %element_p
}

define void @nw_sim_ldmatrix(ptr %slots, i64 %stride, i64 %words, i1 %trans) {
entry:
  br label %next
next:
  %lane = phi i64 [ 0, %entry ], [ %lane1, %done ]
  %to = call ptr @slot(ptr %slots, i64 %stride, i64 %lane, i64 0)
  br label %word
word:
  %w = phi i64 [ 0, %next ], [ %w1, %word ]
  %low_at = call ptr @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 0, i1 %trans)
  %high_at = call ptr @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 1, i1 %trans)
  %low = load i16, ptr %low_at
  %high = load i16, ptr %high_at
  %low_p = getelementptr [2 x i16], ptr %to, i64 %w
  %high_p = getelementptr i8, ptr %low_p, i64 2
  store i16 %low, ptr %low_p
  store i16 %high, ptr %high_p
  %w1 = add i64 %w, 1
  %more_words = icmp ult i64 %w1, %words
  br i1 %more_words, label %word, label %done
done:
  %lane1 = add i64 %lane, 1
  %more = icmp ult i64 %lane1, 32
  br i1 %more, label %next, label %out
out:
  ret void
}

define void @nw_sim_stmatrix(ptr %slots, i64 %stride, i64 %words, i1 %trans) {
entry:
  br label %next
next:
  %lane = phi i64 [ 0, %entry ], [ %lane1, %done ]
  %own = call ptr @slot(ptr %slots, i64 %stride, i64 %lane, i64 0)
  br label %word
word:
  %w = phi i64 [ 0, %next ], [ %w1, %word ]
  %low_to = call ptr @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 0, i1 %trans)
  %high_to = call ptr @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 1, i1 %trans)
  %low_p = getelementptr [2 x i16], ptr %own, i64 %w
  %high_p = getelementptr i8, ptr %low_p, i64 2
  %low = load i16, ptr %low_p
  %high = load i16, ptr %high_p
  store i16 %low, ptr %low_to
  store i16 %high, ptr %high_to
  %w1 = add i64 %w, 1
  %more_words = icmp ult i64 %w1, %words
  br i1 %more_words, label %word, label %done
done:
  %lane1 = add i64 %lane, 1
  %more = icmp ult i64 %lane1, 32
  br i1 %more, label %next, label %out
out:
  ret void
}

; Neighbors first, then pairs of pairs, and so on, up to groups of ``tree``; what these come to is
; combined from the first to the last. What the first thread has then goes to all.
define void @nw_sim_all_reduce(ptr %slots, i64 %stride, i64 %count, i64 %group, i64 %tree,
                               ptr %combine, ptr %spread) {
entry:
  br label %groups
groups:
  %first = phi i64 [ 0, %entry ], [ %first1, %spreaded ]
  %at = mul i64 %first, %stride
  %mine = getelementptr i8, ptr %slots, i64 %at
  br label %level_test
level_test:
  %distance = phi i64 [ 1, %groups ], [ %distance1, %level_done ]
  %wide = icmp ult i64 %distance, %tree
  br i1 %wide, label %level, label %chain
chain:
  %c = phi i64 [ %tree, %level_test ], [ %c1, %link ]
  %more_c = icmp ult i64 %c, %group
  br i1 %more_c, label %link, label %spreads
link:
  %link_at = mul i64 %c, %stride
  %next = getelementptr i8, ptr %mine, i64 %link_at
  call void %combine(ptr %mine, ptr %next)
  %c1 = add i64 %c, %tree
  br label %chain
level:
  %step = shl i64 %distance, 1
  br label %pair
pair:
  %i = phi i64 [ 0, %level ], [ %i1, %pair_done ]
  %j = add i64 %i, %distance
  %both = icmp ult i64 %j, %group
  br i1 %both, label %combine_pair, label %pair_done
combine_pair:
  %left_at = mul i64 %i, %stride
  %right_at = mul i64 %j, %stride
  %left = getelementptr i8, ptr %mine, i64 %left_at
  %right = getelementptr i8, ptr %mine, i64 %right_at
  call void %combine(ptr %left, ptr %right)
  br label %pair_done
pair_done:
  %i1 = add i64 %i, %step
  %more_pairs = icmp ult i64 %i1, %group
  br i1 %more_pairs, label %pair, label %level_done
level_done:
  %distance1 = shl i64 %distance, 1
  br label %level_test
spreads:
  %k = phi i64 [ 1, %chain ], [ %k1, %spread_one ]
  %more_k = icmp ult i64 %k, %group
  br i1 %more_k, label %spread_one, label %spreaded
spread_one:
  %to_at = mul i64 %k, %stride
  %to = getelementptr i8, ptr %mine, i64 %to_at
  call void %spread(ptr %mine, ptr %to)
  %k1 = add i64 %k, 1
  br label %spreads
spreaded:
  %first1 = add i64 %first, %group
  %more = icmp ult i64 %first1, %count
  br i1 %more, label %groups, label %out
out:
  ret void
}
