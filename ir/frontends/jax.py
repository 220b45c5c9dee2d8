"""Objects of JAX as models: what ``lower`` gave, what ``export`` gave, functions to be lowered.

Nothing here needs JAX but a plain function, which ``jax.jit`` has to lower. Objects are known by
their methods, so that no version of JAX is asked for. Arguments and results are the leaves of the
function's pytrees in JAX's order: a module's parameters are ``jax.tree.leaves(args)``, its results
``jax.tree.leaves(result)``. What JAX left out because the function does not use it is no
parameter; a function that is lowered here keeps them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn, Protocol, TypeAlias, runtime_checkable

from ..errors import ArgumentError, NestwrightError, UnsupportedError
from ..hlo.analysis.verify import verify
from ..hlo.nodes import HloModule
from .hlo_proto import reader as protos


@runtime_checkable
class Lowered(Protocol):
    """``jax.jit(f).lower(x)``: a ``jax.stages.Lowered``."""

    def compiler_ir(self, dialect: str | None = None) -> Any: ...


@runtime_checkable
class Traced(Protocol):
    """``jax.jit(f).trace(x)``: a ``jax.stages.Traced``."""

    @property
    def jaxpr(self) -> Any: ...

    def lower(self) -> Any: ...


@runtime_checkable
class Exported(Protocol):
    """``jax.export.export(jax.jit(f))(x)``: a ``jax.export.Exported``."""

    def mlir_module(self) -> str: ...


JaxModel: TypeAlias = Lowered | Traced | Exported | Callable[..., Any]


def to_module(model: Any, example: Any = None) -> HloModule:
    """The module of a JAX object, verified.

    ``ArgumentError`` for anything that is none, for a function without example arguments and for
    one that JAX cannot lower with them; ``UnsupportedError`` where a function is given and there
    is no JAX.
    """
    if isinstance(model, type):
        _refuse(model)
    if example is not None:
        if not callable(model):
            why = f"this is a {_kind(model)}"
            raise ArgumentError("example arguments are those of a function", why)
        arguments = tuple(example) if isinstance(example, tuple | list) else (example,)
        return _verified(_from_function(model, arguments))
    if isinstance(model, Traced):
        model = model.lower()
    match model:
        case Lowered():
            return _verified(_from_lowered(model))
        case Exported():
            from .stablehlo import reader as stablehlo

            return _verified(stablehlo.parse(str(model.mlir_module()), f"<{_kind(model)}>"))
        case _ if callable(model):
            raise ArgumentError(
                f"cannot build the function {getattr(model, '__name__', _kind(model))}",
                "no example arguments are given",
                hint="build(f, example=(x, w)); shapes will do: jax.ShapeDtypeStruct",
            )
        case _:
            _refuse(model)


def _verified(module: HloModule) -> HloModule:
    verify(module)
    return module


def _refuse(model: Any) -> NoReturn:
    raise ArgumentError(
        "not a model", f"a {_kind(model)}",
        hint="give a path, an HloModule, jax.jit(f).lower(x), or a JAX function with example=",
    )  # fmt: skip


def _kind(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def lowered_module(lowered: Lowered) -> HloModule:
    """By its HLO proto, which holds every constant; verified."""
    return _verified(_from_lowered(lowered))


def _from_lowered(lowered: Lowered) -> HloModule:
    computation = lowered.compiler_ir("hlo")
    return protos.parse(bytes(computation.as_serialized_hlo_module_proto()), f"<{_kind(lowered)}>")


def _from_function(function: Callable[..., Any], example: tuple[Any, ...]) -> HloModule:
    """A parameter for every leaf of the arguments, used or not."""
    name = getattr(function, "__name__", "main")
    jax = import_jax(name)
    keeping = keeping_all(function)
    with told_by_jax(name):
        if not hasattr(function, "lower"):
            return _from_lowered(keeping.lower(*example))
        lowered = function.lower(*example)
        module = _from_lowered(lowered)
        if len(module.entry.parameters) < len(jax.tree.leaves(lowered.in_avals)):
            module = _from_lowered(keeping.lower(*example))
        return module


def import_jax(name: str) -> Any:
    """JAX, which is to lower a function; ``UnsupportedError`` where it is not installed."""
    try:
        import jax
    except ImportError:
        raise UnsupportedError(
            f"cannot build the Python function {name}", "JAX has to lower it, and is not installed",
            hint="pip install jax; or give the HLO that another machine made",
        ) from None  # fmt: skip
    return jax


def keeping_all(function: Callable[..., Any], **static: Any) -> Any:
    """The function under ``jax.jit``, which keeps arguments that it does not use."""
    import jax

    @wraps(function)  # for the names of its parameters
    def whole(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return jax.jit(whole, keep_unused=True, **static)


@contextmanager
def told_by_jax(name: str) -> Iterator[None]:
    """Whatever JAX, or the function while it is traced, raises becomes an ``ArgumentError``."""
    try:
        yield
    except NestwrightError:
        raise
    except Exception as e:
        told = str(e).strip().split("\n")[0]
        raise ArgumentError(
            f"JAX cannot lower {name}", f"{type(e).__name__}: {told}",
            hint="does it run on the example arguments? A function with static ones has to be "
            "jax.jit(f, static_argnums=.., keep_unused=True)",
        ) from e  # fmt: skip
