"""Training steps: the loss of a batch of random numbers, and the gradients of all weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .models import UNet


@dataclass(frozen=True)
class Step:
    """A model in training mode, a batch, and the loss of what the model makes of it."""

    model: nn.Module
    batch: Any
    loss: Callable[[Any], Any]

    def __call__(self, run: Any) -> list[Any]:
        """Return the loss by ``run``, the model or what was made of it, and all gradients."""
        weights = list(self.model.parameters())
        for w in weights:
            w.grad = None
        loss = self.loss(run(self.batch))
        loss.backward()
        return [loss, torch.cat([w.grad.flatten() for w in weights if w.grad is not None])]


def _classes(model: nn.Module, batch: Any, count: int) -> Step:
    labels = torch.randint(0, count, (batch.shape[0],))
    return Step(model.train(), batch, lambda out: F.cross_entropy(out, labels))


def _image(name: str, **named: Any) -> Callable[[bool], Step]:
    def make(tiny: bool) -> Step:
        import timm

        images, side = (2, 64) if tiny else (4, 128)
        model = timm.create_model(name, pretrained=False, num_classes=100, **named)
        return _classes(model, torch.randn(images, 3, side, side), 100)

    return make


def _digits(tiny: bool) -> Step:
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    return _classes(model, torch.randn(4 if tiny else 32, 1, 28, 28), 10)


def _unet(tiny: bool) -> Step:
    side = 32 if tiny else 96
    images, wanted = torch.randn(2, 3, side, side), torch.rand(2, 1, 2 * side, 2 * side)
    loss = F.binary_cross_entropy_with_logits
    return Step(UNet(16).train(), images, lambda out: loss(out[:, :1], wanted))


def _text(family: str, **named: Any) -> Callable[[bool], Step]:
    def make(tiny: bool) -> Step:
        import transformers

        width, layers = (64, 2) if tiny else (384, 4)
        words = 100 if tiny else 5000
        config = getattr(transformers, f"{family}Config")(
            vocab_size=words,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            **named,
        )
        model = getattr(transformers, f"{family}LMHeadModel")(config)
        tokens = torch.randint(0, words, (2, 32 if tiny else 128))

        def loss(out: Any) -> Any:
            return F.cross_entropy(out.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

        return Step(model.train(), tokens, loss)

    return make


_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

TRAINED: Mapping[str, Callable[[bool], Step]] = {
    "digits": _digits,
    "resnet18": _image("resnet18"),
    "resnet50": _image("resnet50"),
    "mobilenetv2": _image("mobilenetv2_100"),
    "efficientnet": _image("efficientnet_b0"),
    "densenet": _image("densenet121"),
    "convnext": _image("convnext_atto"),
    "vit": _image("vit_tiny_patch16_224", img_size=128),
    "unet": _unet,
    "bert": _text("Bert", is_decoder=True, **_NO_DROPOUT),
    "gpt2": _text("GPT2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False),
}
"""By name: the function that makes a step, of small sizes or of usual ones."""
