"""The keys of ``Bundle.notes``, which record a bundle's origin; values are strings."""

from __future__ import annotations

HLO = "hlo"
"""The module's text; not there where weights were frozen in, or where it is very long."""

DRAWS = "draws"
"""JSON: scale of the random values, and whether they are positive, for each array of a parameter.

Not there where no values can be drawn."""

SCHEDULED = "scheduled"
"""The number of groups for which a log has a schedule, used or not, in decimal."""

EXCESS_PRECISION = "excess_precision"
"""``1`` if narrow floats stay f32 within groups, else ``0``."""

WEIGHTS = "weights"
"""JSON: the form of narrow weights, and for each its bytes and errors. Not there without such."""

ALLOWED = "accuracy="
"""What precedes the error in that note where an error was allowed, and no form named."""

FALLBACK = "fallback"
"""JSON: for each group that the interpreter runs, its name and why. Not there without such."""

DEVICES = "devices"
"""The numbers of replicas and partitions, ``1,4``. Not there for a program of one device."""

FACTS = "facts"
"""JSON: what each thunk computes, its sources and schedule (``plan.facts``)."""

KEYS = frozenset({HLO, DRAWS, SCHEDULED, EXCESS_PRECISION, WEIGHTS, FALLBACK, FACTS, DEVICES})
