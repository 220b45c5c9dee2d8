"""Python functions that a function of JAX calls back: registered, under names of this process.

``jax.pure_callback``, ``io_callback`` and ``jax.debug`` are custom calls with the place of a
function in a list that JAX keeps beside what it lowered. So only that object can be built with
them; text, and what was exported, has lost the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...hlo.library import library_call
from ...hlo.nodes import Computation, HloModule, Instruction, TokenShape, TupleShape
from ...hlo.passes.prepare.keep_effects import keep_effects
from ...hlo.rewrite import make, map_computations, rebuild, with_attrs, with_entry, with_operands
from ...library.call import LibraryCall
from ...library.registry import register_callback

Callback: TypeAlias = Callable[..., Sequence[Any]]

TARGETS = frozenset({"xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback"})
"""Custom calls of JAX on CPUs whose attribute ``index`` is the place of a function."""


def with_callbacks(module: HloModule, lowered: Any) -> HloModule:
    """Return a module of what JAX lowered that calls its Python functions by registered names.

    Tokens, by which JAX orders them between calls, are no parameters or results of it.
    The module itself where ``lowered`` has no such functions, or does not tell.
    """
    arguments = getattr(getattr(lowered, "_lowering", None), "compile_args", None) or {}
    functions: Sequence[Callback] = tuple(arguments.get("host_callbacks", ()))
    if not functions:
        return module
    names: dict[tuple[int, bool], str] = {}

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode != "custom-call" or i.attrs.get("custom_call_target") not in TARGETS:
            return None
        place = library_call(i).attribute("index", 0, -1)
        if not isinstance(place, int) or not 0 <= place < len(functions):
            return None
        ordered = bool(i.operands) and isinstance(i.operands[0].shape, TokenShape)
        key = place, ordered
        if key not in names:
            names[key] = register_callback(_answer(functions[place], ordered))
        return with_attrs(i, custom_call_target=names[key])

    whole = keep_effects(_without_tokens(module))
    return map_computations(whole, lambda c: rebuild(c, rule))


def _answer(function: Callback, ordered: bool) -> Callable[..., tuple[Any, ...]]:
    """Return the function of a custom call; one that is ``ordered`` takes and gives a token."""
    token: tuple[None, ...] = (None,) if ordered else ()

    def answer(call: LibraryCall, *operands: Any) -> tuple[Any, ...]:
        made = function(*token, *operands)[len(token) :]
        return tuple(np.asarray(a) for a in made)

    return answer


def _without_tokens(module: HloModule) -> HloModule:
    """Return a module whose entry makes the tokens that it took, and keeps those that it gave."""
    entry = module.entry
    if not any(isinstance(p.shape, TokenShape) for p in entry.parameters):
        return module
    new: dict[Instruction, Instruction] = {}
    kept: list[Instruction] = []
    for p in entry.parameters:
        if isinstance(p.shape, TokenShape):
            new[p] = make("after-all", p.shape, name=p.name)
        else:
            new[p] = with_attrs(p, number=len(kept))
            kept.append(new[p])
    for i in entry.instructions:
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands))
    root, made = _arrays(new[entry.root])
    order = (*(new[i] for i in entry.instructions if i is not entry.root), *made)
    return with_entry(module, Computation(entry.name, tuple(kept), order, root))


def _arrays(root: Instruction) -> tuple[Instruction, list[Instruction]]:
    """Return a root without the tokens in its tuple, and the instructions that it ends with."""
    match root:
        case Instruction(opcode="tuple", operands=parts):
            before = []
        case Instruction(shape=TupleShape(elements=shapes)):
            parts = tuple(
                make("get-tuple-element", s, (root,), index=n) for n, s in enumerate(shapes)
            )
            before = [root, *parts]
        case _:
            parts, before = (root,), [root]
    arrays = tuple(p for p in parts if not isinstance(p.shape, TokenShape))
    if len(arrays) == 1:
        return arrays[0], before
    whole = make("tuple", TupleShape(tuple(a.shape for a in arrays)), arrays, name=root.name)
    return whole, [*before, whole]
