"""Runs GPT-2's greedy generation, all tokens in one call; no framework is needed.

    python examples/generate.py                                     the small one that is kept here
    python examples/generate.py gpt2.hlo --layers 12 --width 768 --heads 12 --vocabulary 50257

The sizes are those that `gpt2.py` made the HLO with. The weights are drawn from a seed, so the
tokens mean nothing, but they are the tokens that JAX gives.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from gpt2 import chosen, draw, sizes

import nestwright as nw

HERE = Path(__file__).parent


def main() -> None:
    """Build, run twice, print the tokens and the time of the second call."""
    parser = argparse.ArgumentParser(description="Generate tokens with GPT-2 as HLO.")
    parser.add_argument("model", nargs="?", type=Path, default=HERE / "gpt2_greedy.hlo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="cpu")
    sizes(parser)
    options = parser.parse_args()
    config = chosen(options)
    prompt, weights = draw(config, options.seed)
    start = time.perf_counter()
    exe = nw.build(options.model, target=options.target)
    built = time.perf_counter()
    tokens = exe(prompt, *weights)
    again = time.perf_counter()
    exe(prompt, *weights)
    spent = time.perf_counter() - again
    print("prompt:", *prompt)
    print("tokens:", *tokens)
    steps = config.context - 1
    print(f"built in {built - start:.2f} s; {spent / steps * 1e3:.3f} ms a token ({steps} steps)")


if __name__ == "__main__":
    main()
