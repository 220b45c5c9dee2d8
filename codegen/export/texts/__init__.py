"""The texts beside a C library: headers, an example program, and files for build systems."""
