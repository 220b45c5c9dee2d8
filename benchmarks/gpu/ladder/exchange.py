"""Rungs of arrays that change hands: strided views, DLPack both ways beside our stream."""

from __future__ import annotations

import numpy as np

from .peers import find_peer
from .rung import expect_equal
from .site import Site

TURNS, DRY_TURNS = 1000, 25
VIEWS = {
    "x.T": (0, 0, lambda x: x.T),
    "x[:, ::2]": (0, 1, lambda x: x[:, ::2]),
    "x[1:, 1:]": (1, 0, lambda x: x[1:, 1:]),
}
"""The maker of a square view, and by how much the array exceeds it: in rows, in its whole width."""


def strided(site: Site) -> str:
    """Another library's views, which are not row-major: a kernel of the runtime copies them."""
    (n,) = site.sizes
    exe = site.built[n]
    peer = find_peer(site.device, site.dry, views=True)
    rng = np.random.default_rng(n)
    with peer.side():
        for name, (more, wider, index) in VIEWS.items():
            values = rng.integers(-99, 100, (n + more, n * (1 + wider) + more))
            values = values.astype(np.float32)
            whole = peer.put(values)
            peer.busy()
            view = peer.view(peer.copy(whole), index)
            made = exe(view).numpy()
            expect_equal(made, 3 * index(values), f"{name} of {peer.name}")
    return f"{', '.join(VIEWS)}: {peer.name}"


def dlpack(site: Site) -> str:
    """Arrays both ways through DLPack on a stream beside ours, dropped while it still reads them.

    What we get back may be used again only once the other stream is done with it.
    """
    (n,) = site.sizes
    exe = site.built[n]
    peer = find_peer(site.device, site.dry, views=False)
    spoil = exe.put(np.full((n, n), -1, np.float32))
    turns = DRY_TURNS if site.dry else TURNS
    places = set()
    with peer.side():
        for turn in range(turns):
            values = np.full((n, n), turn, np.float32)
            values[turn % n] += np.arange(n, dtype=np.float32)
            whole = peer.put(values)
            peer.busy()
            given = peer.copy(whole)  # which is not there yet
            made = exe(given)
            del whole, given
            theirs = peer.take(made)
            peer.busy()
            kept = peer.copy(theirs)
            places.add(made.address)
            del made, theirs
            exe(spoil).numpy()  # done before the other stream is: it was given more
            expect_equal(peer.host(kept), 3 * values, f"turn {turn} of {turns}, {peer.name}")
    site.numbers["places"] = len(places)
    return f"{turns} times at {len(places)} places: {peer.name}"
