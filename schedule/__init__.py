"""The scheduling language: rewriting loop nests legally, and remembering what was done."""
