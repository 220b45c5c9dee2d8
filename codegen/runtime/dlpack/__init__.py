"""Arrays that libraries exchange by DLPack's C structures, without a copy."""
