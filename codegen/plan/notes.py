"""What a bundle says of where it came from: the keys of ``Bundle.notes``; values are texts."""

from __future__ import annotations

HLO = "hlo"
"""The module's text; not there where weights were frozen in, or where it is very long."""

DRAWS = "draws"
"""JSON: scale of the random values, and whether they are positive, for each array of a parameter.

Not there where no values can be drawn."""

SCHEDULED = "scheduled"
"""How many of the groups a log has a schedule for, used or not; in decimal."""

EXCESS_PRECISION = "excess_precision"
"""Whether narrow floats stay f32 inside of groups: "1" or "0"."""

KEYS = frozenset({HLO, DRAWS, SCHEDULED, EXCESS_PRECISION})
