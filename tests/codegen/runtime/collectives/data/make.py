"""Writes the models of these tests; run it as ``python make.py`` where JAX is installed.

A data-parallel training step by ``shard_map`` for 2 and 4 devices, as XLA partitioned and compiled
it (``step_N.hlo``), and before that (``whole_N.hlo``, ``whole_N.mlir``); ``step_1.hlo`` is the same
step on one device. ``every_N.hlo`` has each of JAX's collectives.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

ROWS, INPUTS, HIDDEN, OUTPUTS = 16, 12, 10, 6


def step(first, second, x, y, mean):
    """One step of gradient descent of two layers; ``mean`` is over devices."""

    def loss(weights):
        hidden = jnp.tanh(x @ weights[0])
        return jnp.mean((hidden @ weights[1] - y) ** 2)

    value, gradients = jax.value_and_grad(loss)((first, second))
    first, second = (w - 0.1 * mean(g) for w, g in zip((first, second), gradients, strict=True))
    return first, second, mean(value)


def every(x):
    """Each collective of JAX on an array whose rows are spread over devices."""
    count = jax.lax.axis_size("d")
    turn = [(n, (n + 1) % count) for n in range(count)]
    return (
        jax.lax.psum(x, "d"),
        jax.lax.pmax(x, "d"),
        jax.lax.pmin(x, "d"),
        jax.lax.all_gather(x, "d", tiled=True),
        jax.lax.psum_scatter(x, "d", tiled=True),
        jax.lax.all_to_all(x, "d", 0, 1, tiled=True),
        jax.lax.ppermute(x, "d", turn),
        x + jax.lax.axis_index("d").astype(x.dtype),
    )


def bare(text: str) -> str:
    """Drop the metadata, which names files of the machine that made it."""
    text = re.sub(r", metadata=\{[^{}]*\}", "", text)
    text = re.sub(r"(?ms)^(FileNames|FunctionNames|FileLocations|StackFrames)\n.*?\n\n", "", text)
    return re.sub(r"\n{3,}", "\n\n", text)


def write(folder: Path) -> None:
    """Write all models."""
    shapes = [(INPUTS, HIDDEN), (HIDDEN, OUTPUTS), (ROWS, INPUTS), (ROWS, OUTPUTS)]
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    one = jax.jit(lambda *a: step(*a, mean=lambda v: v)).lower(*arrays)
    (folder / "step_1.hlo").write_text(one.as_text("hlo"))
    for count in (2, 4):
        mesh = Mesh(np.array(jax.devices()[:count]), ("d",))
        spread = jax.shard_map(
            lambda *a: step(*a, mean=lambda v: jax.lax.pmean(v, "d")),
            mesh=mesh,
            in_specs=(P(), P(), P("d"), P("d")),
            out_specs=(P(), P(), P()),
            check_vma=False,
        )
        low = jax.jit(spread).lower(*arrays)
        (folder / f"step_{count}.hlo").write_text(bare(low.compile().as_text()))
        (folder / f"whole_{count}.hlo").write_text(low.as_text("hlo"))
        (folder / f"whole_{count}.mlir").write_text(low.as_text())
        rows = jax.ShapeDtypeStruct((count * 4, 8), jnp.float32)
        specs = (*(P("d"),) * 5, P("d"), P("d"), P("d"))
        all_of_them = jax.shard_map(
            every, mesh=mesh, in_specs=P("d"), out_specs=specs, check_vma=False
        )
        low = jax.jit(all_of_them).lower(rows)
        (folder / f"every_{count}.hlo").write_text(bare(low.compile().as_text()))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
