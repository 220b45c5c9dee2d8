"""One function as a callable on arrays: for tests, for tuning and for schedules by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...ir.errors import TargetError
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..plan.function import CompiledFunc
from ..plan.loaded import LoadedFunc
from ..plan.signature import ArraySpec
from ..runtime.process import SHARED
from ..targets.registry import backend, load_function, loads_eagerly, lower
from .compile_group import pack_code, workspace_bytes
from .prepack import split_packs


def compile_object(func: Func, target: Target) -> CompiledFunc:
    """Lower and compile a scheduled function, without loading it.

    ``UnsupportedError`` if the function cannot be compiled.
    """
    main, packs = split_packs(func)
    made = compile_flat(lower(main, target), target)
    params = tuple(map(_spec, func.params))
    return replace(made, params=params, packs=tuple(map(pack_code, packs)))


def compile_flat(flat: Func, target: Target) -> CompiledFunc:
    """Compile a lowered function."""
    found = backend(target)
    return CompiledFunc(
        name=flat.name,
        target=target,
        params=tuple(map(_spec, flat.params)),
        outputs=flat.outputs,
        code=found.compile(flat, target, {}),
        workspace=workspace_bytes(flat),
        runtime=found.runtime(target)[SHARED:],
    )


def _spec(buffer: Buffer) -> ArraySpec:
    return ArraySpec(buffer.name, buffer.dtype, tuple(map(int, buffer.shape)))


@dataclass(frozen=True)
class Kernel:
    """A compiled function: ``kernel(*inputs)`` returns the output, or a tuple of several.

    It accepts the same arguments as an executable for its target, and is loaded at its first call:
    ``TargetError`` if this machine cannot run it.
    """

    compiled: CompiledFunc

    def __call__(self, *inputs: Any, out: object = None) -> Any:
        """Run on arrays of the shapes and element types of the function's inputs.

        ``out``, an array or a tuple of arrays, receives the results and is returned.
        ``ArgumentError`` for a wrong number, shape or element type.
        """
        return self.loaded.run(inputs, out)

    def __repr__(self) -> str:
        return f"<Kernel {self.compiled.name} for {self.compiled.target.spec}>"

    def __reduce__(self) -> tuple[type[Kernel], tuple[CompiledFunc]]:
        return type(self), (self.compiled,)  # not what is loaded into this process

    @cached_property
    def loaded(self) -> LoadedFunc:
        """The function in this process, or on this machine's device."""
        return load_function(self.compiled)


def compile_func(func: Func, target: Target) -> Kernel:
    """Compile a scheduled function.

    Code for a processor is loaded at once: ``TargetError`` if this machine cannot run it.
    """
    if loads_eagerly(target) and not target.is_host:
        raise TargetError(
            f"code for {target.spec!r} cannot run on this machine",
            f"it lacks {', '.join(target.missing)}",
            hint="compile_object gives its object code",
        )
    kernel = Kernel(compile_object(func, target))
    if loads_eagerly(target):
        _ = kernel.loaded
    return kernel
