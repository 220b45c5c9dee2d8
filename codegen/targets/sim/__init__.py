"""The GPU simulator: GPU code on the host, every thread a coroutine, every access watched."""
