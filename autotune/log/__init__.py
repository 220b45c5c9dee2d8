"""The tuning log: records, the file, units for people."""
