"""nestwright: a scheduling compiler for tensor programs.

The face is lazy: a name is loaded from its home on first use, so importing the package costs
a few milliseconds and pulls in neither LLVM nor a tuner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import te as te
    from .autotune.api import tune as tune
    from .autotune.bench import bench as bench
    from .autotune.build import build as build
    from .autotune.lowered import Lowered as Lowered
    from .autotune.lowered import lower as lower
    from .autotune.recompile import explain_recompile as explain_recompile
    from .autotune.specialize import Specialized as Specialized
    from .autotune.study import study as study
    from .codegen.driver.artifact import load as load
    from .codegen.driver.from_stage import build_from as build_from
    from .codegen.plan.counters import counters as counters
    from .codegen.runtime.executable import Executable as Executable
    from .interop.explain import explain as explain
    from .interop.jit import jit as jit
    from .ir.hlo.fuse.library_groups import register_library as register_library
    from .ir.hlo.text import parse as parse
    from .ir.hlo.text import show as show
    from .ir.library.call import LibraryCall as LibraryCall
    from .ir.library.registry import register_custom_call as register_custom_call
    from .ir.target import Target as Target
    from .schedule.language.schedule import Schedule as Schedule
    from .schedule.sketches.sampled import schedule_rule as schedule_rule

__version__ = "0.1.0"
__all__ = [
    "Executable",
    "LibraryCall",
    "Lowered",
    "Schedule",
    "Specialized",
    "Target",
    "bench",
    "build",
    "build_from",
    "counters",
    "explain",
    "explain_recompile",
    "jit",
    "load",
    "lower",
    "parse",
    "register_custom_call",
    "register_library",
    "schedule_rule",
    "show",
    "study",
    "te",
    "tune",
]

_HOME = {
    "Executable": ".codegen.runtime.executable",
    "LibraryCall": ".ir.library.call",
    "Lowered": ".autotune.lowered",
    "Schedule": ".schedule.language.schedule",
    "Specialized": ".autotune.specialize",
    "Target": ".ir.target",
    "bench": ".autotune.bench",
    "build": ".autotune.build",
    "build_from": ".codegen.driver.from_stage",
    "counters": ".codegen.plan.counters",
    "explain": ".interop.explain",
    "explain_recompile": ".autotune.recompile",
    "jit": ".interop.jit",
    "load": ".codegen.driver.artifact",
    "lower": ".autotune.lowered",
    "parse": ".ir.hlo.text",
    "register_custom_call": ".ir.library.registry",
    "register_library": ".ir.hlo.fuse.library_groups",
    "schedule_rule": ".schedule.sketches.sampled",
    "show": ".ir.hlo.text",
    "study": ".autotune.study",
    "te": ".te",
    "tune": ".autotune.api",
}


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use."""
    home = _HOME.get(name)
    if home is None:
        known = "" if name.startswith("_") else f"; it has {', '.join(__all__)}"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{known}", name=name)
    module = import_module(home, __name__)
    value = module if home == f".{name}" else getattr(module, name)
    globals()[name] = value
    return value
