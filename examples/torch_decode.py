"""A decoder of transformers through ``torch.compile(backend="nestwright")``, with a static cache.

    python examples/torch_decode.py                                   a small Llama
    python examples/torch_decode.py --family Qwen2 --layers 8 --width 768 --heads 12

One prompt is taken in eager mode; then each token is a call of the compiled model, which writes the
new keys and values into the cache where it lies. Weights are random and nothing is downloaded. The
tokens are compared with those of eager mode, and both speeds are printed.

Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral")


def decoder(options: argparse.Namespace) -> Any:
    """Return a decoder with random weights, of the sizes asked for."""
    config = getattr(transformers, f"{options.family}Config")(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=max(1, options.heads // 4),
        head_dim=options.width // options.heads,
        intermediate_size=8 * options.width // 3,
    )
    return getattr(transformers, f"{options.family}ForCausalLM")(config).eval()


@torch.no_grad()
def generate(
    model: Any, step: Callable[..., Any], prompt: Any, count: int
) -> tuple[list[int], float]:
    """Return ``count`` greedy tokens after a prompt, and the seconds from the second one on."""
    length = prompt.shape[1]
    cache = transformers.StaticCache(config=model.config, max_cache_len=length + count)
    logits = model(prompt, past_key_values=cache).logits
    token = logits[:, -1:].argmax(-1)
    tokens = [int(token)]
    begin = time.perf_counter()
    for place in range(length, length + count - 1):
        where = torch.tensor([[place]])
        token = step(token, past_key_values=cache, position_ids=where).logits.argmax(-1)
        tokens.append(int(token))
    return tokens, time.perf_counter() - begin


def main() -> None:
    """Generate in eager mode and compiled, compare the tokens, print both speeds."""
    parser = argparse.ArgumentParser(
        description="Generate with a compiled decoder of transformers."
    )
    parser.add_argument("--family", choices=FAMILIES, default="Llama")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = decoder(options)
    prompt = torch.randint(0, options.vocabulary, (1, options.prompt))
    compiled = torch.compile(model.forward, backend="nestwright", dynamic=False)
    begin = time.perf_counter()
    generate(model, compiled, prompt, options.tokens)
    print(f"compiled, with the first {options.tokens} tokens: {time.perf_counter() - begin:.1f} s")
    tokens = {}
    for way, step in (("eager", model.forward), ("nestwright", compiled)):
        tokens[way], seconds = generate(model, step, prompt, options.tokens)
        print(f"{way:12}{(options.tokens - 1) / seconds:8.1f} tokens/s")
    assert tokens["eager"] == tokens["nestwright"], "the tokens differ"
    print("the tokens are the same:", *tokens["nestwright"][:12], "...")


if __name__ == "__main__":
    main()
