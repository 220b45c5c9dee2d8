"""Whisper's encoder and cached decoder through ``torch.compile(backend="nestwright")``.

    python examples/whisper.py                       a small one
    python examples/whisper.py --layers 4 --width 384 --heads 6 --bands 80 --frames 3000

The encoder runs once for a piece of sound; the decoder then writes token by token, with its keys
and values in a static cache and those of the sound in another. Weights are random and nothing is
downloaded. The tokens are compared with those of eager mode, and both speeds are printed.

Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import EncoderDecoderCache, StaticCache, WhisperConfig
from transformers import WhisperForConditionalGeneration as Whisper
from transformers.modeling_outputs import BaseModelOutput

START = 1  # the token that begins a text


def network(options: argparse.Namespace) -> Any:
    """Return a Whisper with random weights, of the sizes asked for."""
    config = WhisperConfig(
        vocab_size=options.vocabulary,
        d_model=options.width,
        encoder_layers=options.layers,
        decoder_layers=options.layers,
        encoder_attention_heads=options.heads,
        decoder_attention_heads=options.heads,
        encoder_ffn_dim=4 * options.width,
        decoder_ffn_dim=4 * options.width,
        num_mel_bins=options.bands,
        max_source_positions=options.frames // 2,
        max_target_positions=options.tokens + 1,
        pad_token_id=0,
        bos_token_id=START,
        eos_token_id=2,
        decoder_start_token_id=START,
    )
    return Whisper(config).eval()


@torch.no_grad()
def transcribe(
    model: Any, encode: Callable[..., Any], step: Callable[..., Any], sound: Any, count: int
) -> tuple[list[int], float, float]:
    """Return ``count`` tokens for a piece of sound, and the seconds of encoding and decoding."""
    begin = time.perf_counter()
    heard = BaseModelOutput(encode(sound).last_hidden_state)
    encoded = time.perf_counter()
    own = StaticCache(config=model.config, max_cache_len=count + 1)
    cross = StaticCache(config=model.config, max_cache_len=heard.last_hidden_state.shape[1])
    cache = EncoderDecoderCache(own, cross)
    tokens = [START]
    for place in range(count):
        found = (model.forward if place == 0 else step)(
            encoder_outputs=heard,
            decoder_input_ids=torch.tensor([tokens[-1:]]),
            decoder_position_ids=torch.tensor([[place]]),
            past_key_values=cache,
        )
        tokens.append(int(found.logits[0, -1].argmax()))
    return tokens[1:], encoded - begin, time.perf_counter() - encoded


def main() -> None:
    """Transcribe noise in eager mode and compiled, compare the tokens, print both speeds."""
    parser = argparse.ArgumentParser(description="Transcribe with a compiled Whisper.")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--bands", type=int, default=40, help="of the sound's spectrum")
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = network(options)
    sound = torch.randn(1, options.bands, options.frames)
    encoder = model.get_encoder()
    encode = torch.compile(encoder, backend="nestwright", dynamic=False)
    step = torch.compile(model.forward, backend="nestwright", dynamic=False)
    begin = time.perf_counter()
    for _ in range(2):  # torch compiles again when it sees that each text has caches of its own
        transcribe(model, encode, step, sound, options.tokens)
    print(f"compiled, with the first two texts: {time.perf_counter() - begin:.1f} s")
    texts = {}
    for way, calls in (("eager", (encoder, model.forward)), ("nestwright", (encode, step))):
        text, encoding, decoding = transcribe(model, *calls, sound, options.tokens)
        texts[way] = text
        rates = f"{1 / encoding:8.1f} sounds/s encoded {options.tokens / decoding:8.1f} tokens/s"
        print(f"{way:12}{rates}")
    assert texts["eager"] == texts["nestwright"], "the texts differ"
    print("the texts are the same:", *texts["nestwright"][:12], "...")


if __name__ == "__main__":
    main()
