"""What torch itself runs of a compiled model, as its profiler sees it: views and allocations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces

VIEWS = {"as_strided", "view", "t", "transpose", "permute", "select", "detach"}
MOVES = {*VIEWS, "empty", "empty_strided", "copy_"}
"""Views, allocations, and the copy of new running statistics into their buffers."""


def kernels(step: Callable[[], object]) -> set[str]:
    """The ATen operators that a second call runs."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    names = {event.key for event in profile.key_averages()}
    assert names
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


class Images(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.SiLU()]
        pools = [torch.nn.MaxPool2d(2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
        self.net = torch.nn.Sequential(*layers, *pools, torch.nn.Linear(4, 3))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.cross_entropy(self.net(x), torch.arange(2))


class Texts(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 12, dropout=0, batch_first=True)

    def forward(self, x: Any) -> Any:
        found = torch.nn.functional.gelu(self.layer(self.words(x)))
        return (found @ self.words.weight.T).logsumexp(-1).mean()


GIVEN = {Images: torch.randn(2, 2, 7, 7), Texts: torch.arange(10).view(2, 5) % 9}


@pytest.mark.parametrize("kind", [Images, Texts])
@pytest.mark.parametrize("train", [False, True])
def test_torch_runs_no_kernel(kind: Any, train: bool) -> None:
    from nestwright.interop.torch.backend import nestwright

    net, x, one = kind().train(train), GIVEN[kind], torch.tensor(1.0)
    fast, parameters = torch.compile(net, backend=nestwright), list(net.parameters())

    def step() -> None:
        with torch.set_grad_enabled(train):
            loss = fast(x)
            if train:
                torch.autograd.grad(loss, parameters, one)

    assert kernels(step) <= MOVES


def test_a_kernel_of_torch_would_be_seen() -> None:
    assert "mm" in kernels(lambda: torch.ones(2, 2) @ torch.ones(2, 2))
