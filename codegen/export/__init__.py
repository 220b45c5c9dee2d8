"""Models as C libraries: an archive of object code, and texts for C, C++, CMake and pkg-config."""
