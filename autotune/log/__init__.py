"""The tuning log: records, the file, units for people. The names are loaded on first use."""

from typing import TYPE_CHECKING

from ...ir.lazy import loader

if TYPE_CHECKING:
    from .automatic import automatic_log as automatic_log
    from .automatic import origin_note as origin_note
    from .automatic import with_related as with_related
    from .contents import Log as Log
    from .contents import absent_functions as absent_functions
    from .contents import describe as describe
    from .contents import schedules_of as schedules_of
    from .journal import read as read

__getattr__ = loader(
    __name__,
    {
        "automatic_log": ".automatic:automatic_log",
        "origin_note": ".automatic:origin_note",
        "with_related": ".automatic:with_related",
        "Log": ".contents:Log",
        "absent_functions": ".contents:absent_functions",
        "describe": ".contents:describe",
        "read": ".journal:read",
        "schedules_of": ".contents:schedules_of",
    },
)
