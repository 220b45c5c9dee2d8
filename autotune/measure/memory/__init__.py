"""Memory for candidates: guard pages, patterns in what is uninitialized, and what is cached."""
