"""Rungs of a kernel that faults: who is named, what the process says after it, the next process."""

from __future__ import annotations

import numpy as np

from .peers import Lent
from .rung import Wrong, expect, expect_equal
from .site import Site

NOWHERE = 1 << 20  # an address at which no memory is


def fault(site: Site) -> str:
    """Run a kernel that reads unmapped memory: the error names it, and so does the process
    afterwards.
    """
    from nestwright.ir.errors import DeviceError

    (n,) = site.sizes
    exe = site.built[n]
    x = np.zeros((n, n), np.float32)
    put = exe.put(x)
    exe(put, put).numpy()
    bad = Lent(NOWHERE, (n, n), x.dtype)
    try:
        exe(bad, put)
    except DeviceError as error:
        told = str(error)
    else:
        raise Wrong("a kernel read at an address without memory, and no error came")
    first = next(t.symbol for t in exe.plan.thunks if hasattr(t, "symbol"))
    expect(first in told, f"the error does not name kernel {first}: {told}")
    try:
        exe(put, put)
    except DeviceError as error:
        expect("in this process" in str(error), f"the next call says only: {error}")
    else:
        raise Wrong("the process went on after the fault as if nothing had been")
    return told.split("\n")[0]


def after_fault(site: Site) -> str:
    """Check that the next process finds the machine in order."""
    for size in site.sizes:
        x = (np.arange(size) % 100).astype(np.float32)
        expect_equal(site.call(size, x, x), x * x + x, "x * x + x after a fault elsewhere")
    return "the machine is fine"
