"""The runtime: arena, threads, native entry, executables."""
