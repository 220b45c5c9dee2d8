"""The commands of `nestwright`, a file for each; `targets` and `doctor` share one."""
