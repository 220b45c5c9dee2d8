"""Networks beside image classifiers, for `zoo.py`: of transformers by configuration, and our own.

Each is a module with what it is called with. Transformers are small ones of their family, or whole
ones of fewer layers; the others make, restore or change images, or go through sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]

WORDS = 1000  # of a vocabulary, which inputs are from
SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}

TRANSFORMERS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "albert_base": (
        "Albert",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        (1, 128),
    ),
    "ast_4l": ("AST", SMALL | {"num_hidden_layers": 4, "max_length": 512}, (1, 512, 128)),
    "bert_tiny_512": (
        "Bert",
        {
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 512,
        },
        (1, 512),
    ),
    "clip_text": ("CLIPText", {"num_hidden_layers": 6}, (1, 77)),
    "clip_vision": ("CLIPVision", {"num_hidden_layers": 6}, (1, 3, 224, 224)),
    "deberta_v2_small": (
        "DebertaV2",
        SMALL
        | {
            "num_hidden_layers": 6,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
        (1, 128),
    ),
    "dinov2_small": (
        "Dinov2",
        {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 6},
        (1, 3, 224, 224),
    ),
    "distilbert": ("DistilBert", {}, (1, 128)),
    "electra_small": ("Electra", {}, (1, 128)),
    "hubert_4l": ("Hubert", {"num_hidden_layers": 4}, (1, 16000)),
    "minilm_l6": (
        "Bert",
        SMALL | {"num_hidden_layers": 6, "num_attention_heads": 12},
        (1, 128),
    ),
    "mobilebert": ("MobileBert", {"num_hidden_layers": 12}, (1, 128)),
    "opt_125m": ("OPT", {}, (1, 128)),
    "segformer_b0": ("Segformer", {}, (1, 3, 256, 256)),
    "squeezebert": ("SqueezeBert", {"num_hidden_layers": 6}, (1, 128)),
    "videomae_small": (
        "VideoMAE",
        SMALL | {"num_hidden_layers": 4, "num_frames": 8},
        (1, 8, 3, 224, 224),
    ),
    "wav2vec2_6l": ("Wav2Vec2", {"num_hidden_layers": 6}, (1, 16000)),
}
"""The family, what differs from its default configuration, and the shape of its input."""

SEGMENTED = ("Segformer",)  # families that are taken with the head which labels pixels
INPUTS = {1: "input_ids", 2: "input_values", 3: "input_values", 4: "pixel_values"}
"""The name of the input by the number of its dimensions, where it holds no words."""


class First(nn.Module):
    """The first result of a model that is called by the name of its input."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: torch.Tensor) -> Any:
        """Return what the model returns first."""
        return self.model(**{self.name: x})[0]


def transformer(name: str) -> Made:
    """Return a model of transformers with random weights."""
    family, changes, shape = TRANSFORMERS[name]
    config = getattr(transformers, f"{family}Config")(**changes)
    config._attn_implementation = "eager"
    if hasattr(config, "use_cache"):
        config.use_cache = False
    kind = "ForSemanticSegmentation" if family in SEGMENTED else "Model"
    model = getattr(transformers, f"{family}{kind}")(config)
    words = len(shape) == 2 and "vocab_size" in config.to_dict() and shape[1] < 1024
    if words:
        return First(model, "input_ids"), (torch.randint(0, WORDS, shape),)
    name = INPUTS[min(len(shape), 4)]
    return First(model, name), (torch.randn(shape),)


class Residual(nn.Module):
    """``x + f(x)``"""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + self.layers(x)


def _conv(inputs: int, outputs: int, size: int = 3, **more: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, **more)


def espcn() -> Made:
    """Super-resolution whose last layer has the pixels of 3 x 3 squares as features."""
    layers = [_conv(1, 64, 5), nn.Tanh(), _conv(64, 32), nn.Tanh(), _conv(32, 9)]
    return nn.Sequential(*layers, nn.PixelShuffle(3)), (torch.randn(1, 1, 120, 160),)


def srresnet() -> Made:
    """Super-resolution by residual blocks, between 9 x 9 convolutions."""
    blocks = [Residual(_conv(64, 64), nn.PReLU(), _conv(64, 64)) for _ in range(6)]
    up = [_conv(64, 256), nn.PixelShuffle(2), nn.PReLU()]
    model = nn.Sequential(_conv(3, 64, 9), nn.PReLU(), *blocks, *up, _conv(64, 3, 9))
    return model, (torch.randn(1, 3, 96, 96),)


def _reflected(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.ReflectionPad2d(size // 2), nn.Conv2d(inputs, outputs, size, stride)]


def style_transfer() -> Made:
    """An image in the style of another: reflected borders, instance norms, nearest upsampling."""

    def normed(features: int) -> list[nn.Module]:
        return [nn.InstanceNorm2d(features, affine=True), nn.ReLU()]

    down = [*_reflected(3, 16, 9), *normed(16), *_reflected(16, 32, 3, 2), *normed(32)]
    down += [*_reflected(32, 64, 3, 2), *normed(64)]
    same = [
        Residual(*_reflected(64, 64, 3), *normed(64), *_reflected(64, 64, 3), *normed(64)[:1])
        for _ in range(5)
    ]
    up: list[nn.Module] = []
    for inputs, outputs in ((64, 32), (32, 16)):
        up += [nn.Upsample(scale_factor=2), *_reflected(inputs, outputs, 3), *normed(outputs)]
    return nn.Sequential(*down, *same, *up, *_reflected(16, 3, 9)), (torch.randn(1, 3, 224, 224),)


def vae_decoder() -> Made:
    """The decoder of a latent diffusion model: group norms, nearest upsampling."""

    def block(features: int) -> nn.Module:
        half = [nn.GroupNorm(16, features), nn.SiLU(), _conv(features, features)]
        return Residual(*half, nn.GroupNorm(16, features), nn.SiLU(), _conv(features, features))

    layers = [_conv(4, 128), block(128), nn.Upsample(scale_factor=2), _conv(128, 64), block(64)]
    layers += [nn.Upsample(scale_factor=2), _conv(64, 64), block(64)]
    tail = [nn.GroupNorm(16, 64), nn.SiLU(), _conv(64, 3)]
    return nn.Sequential(*layers, *tail), (torch.randn(1, 4, 32, 32),)


class UNet(nn.Module):
    """Convolutions on four scales, with what was on the way down beside what comes up."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]

        def two(inputs: int, outputs: int) -> nn.Module:
            layers = [_conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU()]
            return nn.Sequential(*layers, _conv(outputs, outputs), nn.ReLU())

        self.down = nn.ModuleList(two(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        pairs = list(zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.across = nn.ModuleList(two(a, b) for a, b in pairs)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two labels for each pixel."""
        kept: list[torch.Tensor] = []
        for n, layers in enumerate(self.down):
            x = layers(functional.max_pool2d(x, 2) if n else x)
            kept.append(x)
        for up, layers, beside in zip(self.up, self.across, kept[-2::-1], strict=True):
            x = layers(torch.cat([up(x), beside], 1))
        return self.last(x)


def unet() -> Made:
    """A network that segments images."""
    return UNet(), (torch.randn(1, 3, 256, 256),)


class Tagger(nn.Module):
    """Labels of words by a recurrent network in both directions."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score for each label of each word."""
        return self.last(self.lstm(self.words(x))[0])


def bilstm_tagger() -> Made:
    """A tagger of a sentence of 64 words."""
    return Tagger(), (torch.randint(0, WORDS, (1, 64)),)


OWN: dict[str, Callable[[], Made]] = {
    f.__name__: f for f in (bilstm_tagger, espcn, srresnet, style_transfer, unet, vae_decoder)
}
