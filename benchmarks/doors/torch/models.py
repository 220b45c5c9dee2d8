"""Models of timm, transformers and torch.nn with random weights, small for tests or of usual sizes.

Nothing is downloaded: networks of transformers are made from their configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Workload:
    """A model, or a step of it, with the arguments of a call."""

    model: Any
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    reset: Callable[[], None] = lambda: None
    """Takes back what a call leaves behind."""

    def __call__(self, run: Any) -> Any:
        """Call ``run``, the model or what was made of it, with the arguments."""
        self.reset()
        return run(*self.args, **self.named)


def _image(
    name: str, small: int = 64, usual: int = 224, **named: Any
) -> Callable[[bool], Workload]:
    def make(tiny: bool) -> Workload:
        import timm

        side = small if tiny else usual
        model = timm.create_model(name, pretrained=False, **named).eval()
        return Workload(model, (torch.randn(1, 3, side, side),))

    return make


def _sized(name: str, small: int) -> Callable[[bool], Workload]:
    """A network of timm whose weights depend on the size of the image."""

    def make(tiny: bool) -> Workload:
        return _image(name, small, img_size=small if tiny else 224)(tiny)

    return make


_SMALL = {"vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = {"num_key_value_heads": 2, "intermediate_size": 128}
_USUAL = {
    "vocab_size": 32000,
    "hidden_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "intermediate_size": 2048,
}


def _tokens(rows: int, length: int, vocabulary: int = 200) -> Any:
    return torch.randint(0, vocabulary, (rows, length))


def _bert(tiny: bool) -> Workload:
    from transformers import BertConfig, BertModel

    config = BertConfig(**_SMALL, intermediate_size=128) if tiny else BertConfig()
    length = 16 if tiny else 128
    mask = torch.ones(2 if tiny else 1, length, dtype=torch.long)
    mask[-1, length * 3 // 4 :] = 0
    model = BertModel(config).eval()
    return Workload(model, (_tokens(len(mask), length),), {"attention_mask": mask})


def _gpt2_model(tiny: bool) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 200, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**(sizes if tiny else {}))).eval()


def _gpt2(tiny: bool) -> Workload:
    ids = _tokens(2 if tiny else 1, 16 if tiny else 128)
    return Workload(_gpt2_model(tiny), (ids,), {"use_cache": False})


def decoding(model: Any, context: int, prompt: Any) -> Workload:
    """Return a step of a decoder with a static cache: one token after a prompt."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=context)
    with torch.no_grad():
        model(prompt, past_key_values=cache)

    def reset() -> None:
        for layer in cache.layers:
            layer.cumulative_length.fill_(prompt.shape[1])

    return Workload(model, (prompt[:, -1:],), {"past_key_values": cache}, reset)


def _gpt2_decode(tiny: bool) -> Workload:
    model, length = _gpt2_model(tiny), 8 if tiny else 128
    return decoding(model, 32 if tiny else 512, _tokens(1, length))


def _decoder(family: str) -> Callable[[bool], Workload]:
    def make(tiny: bool) -> Workload:
        import transformers

        config = getattr(transformers, f"{family}Config")
        kind = getattr(transformers, f"{family}ForCausalLM")
        sizes = {**_SMALL, **_DECODER} if tiny else dict(_USUAL)
        if family == "Qwen3":
            sizes["head_dim"] = 16 if tiny else 64
        ids = _tokens(2 if tiny else 1, 16 if tiny else 128)
        return Workload(kind(config(**sizes)).eval(), (ids,), {"use_cache": False})

    return make


def _t5(tiny: bool) -> Workload:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 200, "d_model": 64, "d_kv": 16, "d_ff": 128}
    config = T5Config(**sizes, num_layers=2, num_heads=4) if tiny else T5Config()
    ids, own = _tokens(2, 16 if tiny else 64), _tokens(2, 8 if tiny else 32)
    named = {"input_ids": ids, "decoder_input_ids": own, "use_cache": False}
    return Workload(T5ForConditionalGeneration(config).eval(), named=named)


def whisper_config(tiny: bool) -> Any:
    """Return the configuration of Whisper tiny, or of one that is much smaller."""
    from transformers import WhisperConfig

    sizes = {
        "vocab_size": 200,
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "num_mel_bins": 16,
        "max_source_positions": 50,
        "max_target_positions": 40,
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    usual = {"encoder_attention_heads": 6, "decoder_attention_heads": 6, "d_model": 384}
    return WhisperConfig(**(sizes if tiny else usual), **tokens)


def _whisper(tiny: bool) -> Workload:
    from transformers import WhisperForConditionalGeneration

    config = whisper_config(tiny)
    sound = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
    named = {"input_features": sound, "decoder_input_ids": _tokens(1, 8), "use_cache": False}
    return Workload(WhisperForConditionalGeneration(config).eval(), named=named)


class _Twice(nn.Module):
    """Two convolutions, normed, of a U-Net's level."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in (into, out):
            layers += [nn.Conv2d(width, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class UNet(nn.Module):
    """A U-Net of three levels that doubles the image at its end."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1, self.down2 = _Twice(3, width), _Twice(width, 2 * width)
        self.bottom = _Twice(2 * width, 4 * width)
        self.up2, self.up1 = _Twice(4 * width, 2 * width), _Twice(2 * width, width)
        self.widen2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.widen1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Any) -> Any:
        one = self.down1(x)
        two = self.down2(nn.functional.max_pool2d(one, 2))
        low = self.bottom(nn.functional.max_pool2d(two, 2))
        y = self.up2(torch.cat([self.widen2(low), two], 1))
        y = self.up1(torch.cat([self.widen1(y), one], 1))
        return self.last(nn.functional.interpolate(y, scale_factor=2, mode="bilinear"))


def _unet(tiny: bool) -> Workload:
    side = 32 if tiny else 128
    return Workload(UNet(16 if tiny else 32).eval(), (torch.randn(1, 3, side, side),))


class Recurrent(nn.Module):
    """An LSTM over embedded tokens, both ways, and a layer that reads it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(200, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * width, 5)

    def forward(self, x: Any) -> Any:
        return self.last(self.lstm(self.table(x))[0])


def _lstm(tiny: bool) -> Workload:
    torch._dynamo.config.allow_rnn = True  # else torch leaves nn.LSTM to eager mode
    return Workload(Recurrent(16 if tiny else 256).eval(), (_tokens(2, 7 if tiny else 64),))


MODELS: Mapping[str, Callable[[bool], Workload]] = {
    "resnet50": _image("resnet50"),
    "mobilenetv3": _image("mobilenetv3_large_100"),
    "efficientnet": _image("efficientnet_b0"),
    "convnext": _image("convnext_atto"),
    "swin": _sized("swin_tiny_patch4_window7_224", 224),
    "vit": _sized("vit_tiny_patch16_224", 64),
    "bert": _bert,
    "gpt2": _gpt2,
    "gpt2_decode": _gpt2_decode,
    "llama": _decoder("Llama"),
    "qwen2": _decoder("Qwen2"),
    "qwen3": _decoder("Qwen3"),
    "t5": _t5,
    "whisper": _whisper,
    "unet": _unet,
    "lstm": _lstm,
}
"""By name: the function that makes it, of small sizes or of usual ones."""
