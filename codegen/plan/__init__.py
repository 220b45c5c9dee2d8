"""The plan of a run, as data: thunks, arena, constants, packs, bundles. Imports no compiler."""
