"""From collectives of an optimized module to the calls that the runtime answers."""

from __future__ import annotations

from typing import Any

from ...ir.hlo.library import array_types
from ...ir.hlo.meaning.collectives import reducer_op
from ...ir.hlo.nodes import Instruction
from ...ir.hlo.ops.collectives import PAIRS, written
from ...ir.hlo.text.canonical import canonical_text
from ...ir.library.call import COLLECTIVE, LibraryCall


def collective_call(i: Instruction) -> LibraryCall:
    """Return the call of a collective whose groups are of devices by number.

    Attributes are ``groups`` or ``pairs``, ``dimension`` and ``reducer``. That is the name of one
    that NumPy has; of others it is empty, and ``backend_config`` is the computation's text.
    """
    attributes: dict[str, Any] = {COLLECTIVE: i.name}
    attributes["pairs" if PAIRS in i.attrs else "groups"] = written(i) or ()
    text = ""
    if "dimensions" in i.attrs:
        (attributes["dimension"],) = i.attrs["dimensions"]
    if (reducer := i.attrs.get("to_apply")) is not None:
        attributes["reducer"] = op = reducer_op(reducer)
        text = "" if op else canonical_text(reducer)
    operands = array_types(o.shape for o in i.operands)
    results = array_types((i.shape,))
    return LibraryCall(i.opcode, i.opcode, operands, results, text, attributes)
