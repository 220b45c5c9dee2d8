"""What runs at call time: arena, threads, native entry, executables."""
