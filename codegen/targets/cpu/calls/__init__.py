"""A call of an executable: from Python into native code, and how it is interrupted."""
