"""The scheduling language: rewriting loop nests legally, and remembering what was done.

The names are loaded on first use: building a model that is in the cache schedules nothing.
"""

from typing import TYPE_CHECKING

from ..ir.lazy import loader

if TYPE_CHECKING:
    from .language.schedule import Schedule as Schedule
    from .language.trace import Trace as Trace
    from .sketches.generate import default_schedule as default_schedule
    from .sketches.generate import require_finished as require_finished

__getattr__ = loader(
    __name__,
    {
        "Schedule": ".language.schedule:Schedule",
        "Trace": ".language.trace:Trace",
        "default_schedule": ".sketches.generate:default_schedule",
        "require_finished": ".sketches.generate:require_finished",
    },
)
