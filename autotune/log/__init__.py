"""The tuning log: records, the file, units for people. The names are loaded on first use."""

from typing import TYPE_CHECKING

from ...ir.lazy import loader

if TYPE_CHECKING:
    from .contents import Log as Log
    from .contents import absent_functions as absent_functions
    from .contents import describe as describe
    from .contents import schedules_of as schedules_of
    from .journal import read as read
    from .shelf import shelved as shelved
    from .shelf import told as told
    from .shelf import with_kin as with_kin

__getattr__ = loader(
    __name__,
    {
        "shelved": ".shelf:shelved",
        "told": ".shelf:told",
        "with_kin": ".shelf:with_kin",
        "Log": ".contents:Log",
        "absent_functions": ".contents:absent_functions",
        "describe": ".contents:describe",
        "read": ".journal:read",
        "schedules_of": ".contents:schedules_of",
    },
)
