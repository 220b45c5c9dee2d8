"""HLO groups as tensor expressions: ``lower_group`` makes a loop function of a fused group."""

from .group import lower_group as lower_group
