"""ATen's operators as functions of terms, one file for each family."""
