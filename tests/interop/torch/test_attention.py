"""Attention under ``torch.compile`` beside eager: hidden rows, gradients, fused layers."""

from __future__ import annotations

from typing import Any

import pytest

import nestwright as nw

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces


def compiled(model: Any) -> Any:
    from nestwright.interop.torch.backend import nestwright

    return torch.compile(model, backend=nestwright)


@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_hidden_row_is_zero_and_has_no_gradient(backend: str, kind: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shown = torch.rand(5, 7) > 0.4
    shown[1] = False
    mask = shown if kind == "bool" else torch.zeros(5, 7).masked_fill(~shown, -torch.inf)

    def attend(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    given = [torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 7, 7)]
    weights = torch.randn(2, 3, 5, 4)
    want = attend(*given)
    found = compiled(attend)(*given)
    assert not found[:, :, 1].any()
    torch.testing.assert_close(found, want)
    gradients = [torch.autograd.grad((o * weights).sum(), given) for o in (found, want)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("causal", [False, True])
def test_query_heads_that_share_keys_have_their_gradients_summed(causal: bool) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=True
        )

    given = [torch.randn(2, h, n, 4, requires_grad=True) for h, n in ((6, 5), (3, 7), (3, 7))]
    weights = torch.randn(2, 6, 5, 4)
    want, found = attend(*given), compiled(attend)(*given)
    torch.testing.assert_close(found, want)
    gradients = [torch.autograd.grad((o * weights).sum(), given) for o in (found, want)]
    torch.testing.assert_close(*gradients)


def test_a_mask_that_may_hide_rows_is_one_group() -> None:
    class Attend(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    given = [torch.randn(1, 2, 9, 8) for _ in range(3)]
    low = nw.lower(Attend(), *given, torch.ones(9, 9).tril().bool())
    groups = [row for row in low.as_text("fused").splitlines() if row.startswith("//")]
    assert sum(": attention," in row for row in groups) == 1


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_is_one_cluster(norm_first: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(
        12, 3, 20, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    net, x = torch.nn.TransformerEncoder(layer, 2).eval(), torch.randn(3, 5, 12)
    torch.testing.assert_close(compiled(net)(x), net(x))
    (graph,) = nw.explain(net, x).graphs
    assert (graph.clusters, graph.left) == (1, ())
    pad = torch.zeros(3, 5, dtype=torch.bool)
    pad[1, 3:] = True
    one = net.layers[0]
    want = one(x, src_key_padding_mask=pad)
    torch.testing.assert_close(compiled(one)(x, src_key_padding_mask=pad), want)


@torch.no_grad()
@pytest.mark.parametrize(("kind", "average"), [(None, True), (0, False), (1, True), (2, False)])
def test_fused_heads_give_their_weights(kind: int | None, average: bool) -> None:
    net, x = torch.nn.MultiheadAttention(6, 2).eval(), torch.randn(3, 5, 6)
    masks = {0: torch.ones(5, 5).triu(1), 1: torch.eye(3, 5), 2: torch.eye(5).expand(3, 2, 5, 5)}
    weights = (net.in_proj_weight, net.in_proj_bias, net.out_proj.weight, net.out_proj.bias)

    def heads(x: Any, y: Any) -> Any:
        function = torch.ops.aten._native_multi_head_attention
        return function(x, y, y, 6, 2, *weights, masks.get(kind), True, average, kind)

    other = torch.randn(3, 5, 6) if average else x
    torch.testing.assert_close(compiled(heads)(x, other), heads(x, other))
