"""nestwright behind the interfaces of other frameworks."""
