"""Attention whose scores and masks are functions of one score, beside eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed")
flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="an older torch")

LENGTH, WIDTH = 128, 8


class Biased(torch.nn.Module):  # type: ignore[misc]
    """A learned bias for each head and distance, and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.linspace(-1, 1, 4 * LENGTH).reshape(4, LENGTH))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, 1, 1, LENGTH, LENGTH, "cpu")
        return flex.flex_attention(
            q, k, v, lambda x, b, h, i, j: x + self.bias[h, (i - j).abs()], mask
        )


class Capped(torch.nn.Module):  # type: ignore[misc]
    """Scores between -2 and 2, a scale of its own, keys that heads share, and the sums."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return flex.flex_attention(
            q,
            k[:, :2],
            v[:, :2],
            lambda x, b, h, i, j: torch.tanh(x / 2) * 2,
            scale=0.3,
            enable_gqa=True,
            return_lse=True,
        )


class Ragged(torch.nn.Module):  # type: ignore[misc]
    """Keys up to the length of each sequence, near the query; the last rows see none."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        lengths = torch.tensor([LENGTH, 40])

        def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
            return (j < lengths[b]) & ((i - j).abs() < 16)

        mask = flex.create_block_mask(seen, 2, 1, LENGTH, LENGTH, "cpu")
        return flex.flex_attention(q, k, v, block_mask=mask)


def drawn() -> list[Any]:
    rng = np.random.default_rng(0)
    dims = (2, 4, LENGTH, WIDTH)
    return [torch.from_numpy(rng.standard_normal(dims).astype(np.float32)) for _ in range(3)]


def close(found: Any, wanted: Any) -> None:
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("module", [Biased, Capped, Ragged])
def test_an_exported_module(module: Any) -> None:
    model, given = module(), drawn()
    with torch.no_grad():
        close(nw.lower(model, *given).compile()(*given), model(*given))


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_a_score_of_random_numbers_is_refused() -> None:
    class Random(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return flex.flex_attention(
                q, k, v, lambda x, b, h, i, j: x + torch.bernoulli(torch.sigmoid(x))
            )

    with pytest.raises(UnsupportedError, match="generator"):
        nw.lower(Random(), *drawn())
