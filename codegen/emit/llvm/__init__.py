"""LLVM text itself: functions, values, typed instructions."""
