"""Training steps of JAX with optax, as the benchmark of them has them: twenty losses as XLA's."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw

jax = pytest.importorskip("jax", reason="the steps are JAX's")
pytest.importorskip("optax", reason="it updates the weights")


@pytest.mark.parametrize("name", ["lstm", "diffusion"])
def test_losses_are_those_of_xla(name: str) -> None:
    from doors.jax.training import TRAINED, Run, losses

    given = TRAINED[name](True)
    found = losses(Run(nw.jit(given.step, donate_argnums=0), given), 20)
    want = losses(Run(jax.jit(given.step, donate_argnums=0), given), 20)
    assert found[0] != found[-1]
    np.testing.assert_allclose(found, want, rtol=1e-4)
