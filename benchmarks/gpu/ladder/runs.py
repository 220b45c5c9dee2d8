"""Rungs of whole runs: graphs and their replays, decisions, results in given places, large ones."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .machine import drawn
from .peers import Lent
from .rung import Array, expect, expect_equal
from .site import Site

REPLAYS = 3


def graph(site: Site) -> str:
    """Run several kernels one by one, recorded, and replayed: new numbers every time, at two sets
    of addresses in turn.
    """
    (n,) = site.sizes
    exe = site.built[n]
    rng = np.random.default_rng(n)
    squares = [np.zeros((n, n), np.float32)] * 2
    sets = [[exe.put(s) for s in squares] for _ in range(2)]
    outs = [exe.put(squares[0]) for _ in sets]
    with site.counted() as counts:
        for turn in range(2 + REPLAYS):
            for number, (arrays, out) in enumerate(zip(sets, outs, strict=True)):
                x, w = (rng.integers(-4, 5, (n, n)).astype(np.float32) for _ in "xw")
                for array, values in zip(arrays, (x, w), strict=True):
                    _write(site, array, values)
                exe(*arrays, out=out)
                what = f"{_named(turn)} at addresses {number}"
                expect_equal(out.numpy(), _chained(x, w), what)
    made, launched = counts["cuGraphInstantiate"], counts["cuGraphLaunch"]
    expect(made == len(sets), f"{made} graphs were made for {len(sets)} sets of addresses")
    wanted = len(sets) * (1 + REPLAYS)
    expect(launched == wanted, f"graphs were launched {launched} times, not {wanted}")
    return f"{len(sets)} graphs, {launched} launches of them, {len(site.launches(n))} kernels"


def _named(turn: int) -> str:
    return {0: "one by one", 1: "recorded"}.get(turn, f"replay {turn - 1}")


def _write(site: Site, array: Any, values: Array) -> None:
    """New values at the same address."""
    from nestwright.codegen.runtime.cuda.program import staging

    with site.device:
        staging(site.device).upload(values, array.address)


def _chained(x: Array, w: Array) -> Array:
    """In f64, in which these integers are exact."""
    wide = w.astype(np.float64)
    p = x.astype(np.float64) @ wide
    right: Array = ((p - p.sum(1, keepdims=True)) @ wide).astype(np.float32)
    return right


def while_loop(site: Site) -> str:
    """Run a loop whose trip count depends on the data, zero included."""
    turns = []
    for size in site.sizes:
        v = np.linspace(1, 2, size, dtype=np.float32)
        for top in (0.5, 1.0, 1000.0, 1e6):
            count = int(np.floor(np.log2(top))) + 1 if top >= 1 else 0
            for _ in range(3):
                made, n = site.call(size, v, np.float32(top))
                expect(int(n) == count, f"{int(n)} turns to get above {top}, not {count}")
                expect_equal(made, v * np.float32(2**count), f"{size} elements above {top}")
            turns.append(count)
    return f"turns: {', '.join(map(str, turns))}"


def out(site: Site) -> str:
    """Results in arrays of the caller's: elsewhere, on the argument, overlapping, on the host."""
    (n,) = site.sizes
    exe = site.built[n]
    rng = np.random.default_rng(n)
    x = drawn(rng, n, n)
    want = x.T + x
    empty = np.full((n, n), np.nan, np.float32)
    put, target = exe.put(x), exe.put(empty)
    for turn in range(3):
        _write(site, target, empty)
        expect(exe(put, out=target) is target, "out= is not what the call gave back")
        expect_equal(target.numpy(), want, f"out=, call {turn}")
    exe(put, out=put)
    expect_equal(put.numpy(), want, "out= on the argument")
    half = -(-want.nbytes // 512) * 256
    memory = site.device.allocate(2 * half + want.nbytes, "overlapping arrays")
    first, second = (Lent(memory.address + at, x.shape, x.dtype, memory) for at in (0, half))
    _write(site, first, x)
    exe(first, out=second)
    _expect_lent(site, second, want, "out= overlapping with the argument")
    host = empty.copy()
    expect(exe(x, out=host) is host, "out= on the host is not what the call gave back")
    expect_equal(host, want, "out= on the host")
    return "apart, on the argument, overlapping, on the host"


def _expect_lent(site: Site, array: Lent, want: Array, what: str) -> None:
    from nestwright.codegen.runtime.cuda.program import staging

    made = np.empty(array.shape, array.dtype)
    with site.device:
        staging(site.device).download(array.address, made)
    expect_equal(made, want, what)


def gigabytes(site: Site) -> str:
    """Results whose bytes a 32-bit offset does not reach, given back and made again."""
    (size,) = site.sizes
    exe = site.built[size]
    ramp = np.arange(size, dtype=np.int32)
    seconds = []
    for start in (0, 7):
        begun = time.perf_counter()
        made = exe(exe.put(np.int32(start)))
        exe.loaded().synchronize()
        seconds.append(time.perf_counter() - begun)
        got = made.numpy()
        got -= np.int32(start)
        expect_equal(got, ramp, f"{size} numbers from {start}")
        del made, got
    site.numbers["seconds_of_a_call"] = seconds
    return f"{4 * size >> 20} MiB, calls of {', '.join(f'{1e3 * s:.3g} ms' for s in seconds)}"
