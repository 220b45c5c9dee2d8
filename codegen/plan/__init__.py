"""What runs, as data: thunks, arena, constants, packs, bundles; no compiler in it."""
