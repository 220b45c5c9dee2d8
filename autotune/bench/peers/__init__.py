"""Other runtimes and compilers, which a bench times beside ours."""
