"""Lowering by JAX: of its traced, lowered and exported objects, and of functions.

Only a plain function needs JAX to be importable, as ``jax.jit`` lowers it. Arguments and results
are the leaves of the function's pytrees in JAX's order: a module's parameters are
``jax.tree.leaves(args)``, its results ``jax.tree.leaves(result)``. JAX drops arguments that an
object's function does not use; a function that is lowered here keeps them all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from ...errors import ArgumentError, NestwrightError, UnsupportedError
from ...hlo.layouts import row_major
from ...hlo.nodes import HloModule, Shape
from ...hlo.shape_text import UNKNOWN
from ..hlo_proto import reader as protos
from ..imported import Imported
from ..protocols import Exported, Importer, LoweredByJax, Traced
from ..registry import Shapes
from ..stablehlo import reader as stablehlo
from .callbacks import with_callbacks
from .trees import with_trees

_STYLES = re.compile(r"\x1b\[[\d;]*m")  # bold print, colors

IS_TRACING: ContextVar[bool] = ContextVar("IS_TRACING", default=False)
"""True while JAX traces a function for nestwright: jitted functions in it become part of it."""


def staged_model(
    model: Traced | LoweredByJax | Exported, example: None = None, shapes: Shapes | None = None
) -> Imported:
    """Return what JAX traced, lowered or exported, with its trees.

    ``shapes`` settle the sizes that a function was exported with as symbols.
    """
    staged = model.lower() if isinstance(model, Traced) else model
    if isinstance(staged, LoweredByJax):
        return _with_its_trees(staged, lowered_module(staged))
    module = stablehlo.parse(str(staged.mlir_module()), f"<{_kind(staged)}>", shapes)
    return _with_its_trees(staged, module, getattr(staged, "module_kept_var_idx", None))


def _with_its_trees(staged: Any, module: HloModule, kept: Sequence[int] | None = None) -> Imported:
    """Return a module with the trees of what JAX made it of; without, where that has none."""
    if not hasattr(staged, "in_tree") or not hasattr(staged, "out_tree"):
        return Imported(module=module)
    whole = range(staged.in_tree.num_leaves)
    out = staged.out_info if hasattr(staged, "out_info") else None
    if out is None:
        out = import_jax(module.name).tree.unflatten(staged.out_tree, staged.out_avals)
    return with_trees(module, staged.in_tree, out, whole if kept is None else kept)


def function_model(function: Callable[..., Any], example: Any) -> Imported:
    """Return a function as a model: a parameter for every leaf of the arguments, used or not.

    ``ArgumentError`` without example arguments and where JAX cannot lower the function with them;
    ``UnsupportedError`` where JAX is not installed.
    """
    name = getattr(function, "__name__", None)
    if example is None and not _takes_nothing(function):
        raise ArgumentError(
            f"cannot build the function {name or _kind(function)}",
            "no example arguments are given",
            hint="build(f, example=(x, w)); shapes will do: jax.ShapeDtypeStruct",
        )
    arguments = tuple(example) if isinstance(example, tuple | list) else (example,)
    if example is None:
        arguments = ()
    return _from_function(function, arguments, name or "main")


def jitted_model(function: Importer, example: tuple[Any, ...] | None) -> Imported:
    """Return the model of a function of ``nw.jit`` for example arguments."""
    found: Imported = function.imported(*(example or ()))
    return found


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin tells nothing
        return False


def _kind(model: object) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def lowered_module(lowered: LoweredByJax) -> HloModule:
    """Return the module of what JAX lowered, by its HLO proto, which holds every constant.

    Where it calls what was exported with symbols for sizes, there is no proto, or one that leaves
    sizes open. Then its StableHLO is read, in which they follow from the arguments.
    """
    return row_major(with_callbacks(_module(lowered, f"<{_kind(lowered)}>"), lowered))


def _module(lowered: LoweredByJax, source: str) -> HloModule:
    try:
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    except RuntimeError:  # JAX's own: an operation without an equivalent in HLO
        return stablehlo.parse(str(lowered.compiler_ir("stablehlo")), source)
    module = protos.parse(bytes(proto), source)
    shapes = (i.shape for c in module.computations for i in c.instructions)
    if any(isinstance(s, Shape) and UNKNOWN in s.dims for s in shapes):
        return stablehlo.parse(str(lowered.compiler_ir("stablehlo")), source)
    return module


def _from_function(function: Callable[..., Any], example: tuple[Any, ...], name: str) -> Imported:
    jax = import_jax(name)
    keeping = keeping_all(function)
    with tracing(name):
        if not hasattr(function, "lower"):
            lowered = keeping.lower(*example)
            return _with_its_trees(lowered, lowered_module(lowered))
        lowered = function.lower(*example)
        module = lowered_module(lowered)
        if len(module.entry.parameters) < len(jax.tree.leaves(lowered.in_avals)):
            lowered = keeping.lower(*example)
            module = lowered_module(lowered)
        return _with_its_trees(lowered, module)


def import_jax(name: str) -> Any:
    """Import JAX to lower a function; ``UnsupportedError`` where it is not installed."""
    try:
        import jax
    except ImportError:
        raise UnsupportedError(
            f"cannot build the Python function {name}",
            "JAX has to lower it, and is not installed",
            hint='pip install "nestwright[jax]"; or give the HLO that another machine made',
        ) from None
    return jax


def keeping_all(function: Callable[..., Any], **static: Any) -> Any:
    """Return the function under ``jax.jit``, with the arguments that it does not use kept."""
    import jax

    @wraps(function)  # for the names of its parameters
    def whole(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return jax.jit(whole, keep_unused=True, **static)


def _told(error: Exception) -> str:
    """Return the first two lines of a message: of Keras, the first names only the layer."""
    lines = (line.strip() for line in _STYLES.sub("", str(error)).splitlines())
    return " ".join([line for line in lines if line][:2])


@contextmanager
def tracing(name: str) -> Iterator[None]:
    """Raise what JAX, or the function while it is traced, raises as an ``ArgumentError``.

    ``IS_TRACING`` is true meanwhile.
    """
    before = IS_TRACING.set(True)
    try:
        yield
    except NestwrightError:
        raise
    except Exception as e:
        raise ArgumentError(
            f"JAX cannot lower {name}",
            f"{type(e).__name__}: {_told(e)}",
            hint="does it run on the example arguments? One with static arguments needs "
            "nw.jit(f, static_argnums=..), or jax.jit with these and keep_unused=True",
        ) from e
    finally:
        IS_TRACING.reset(before)
