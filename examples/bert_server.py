"""A server loop around BERT: requests of any length, padded to buckets, compiled once for each.

    python examples/bert_server.py
    python examples/bert_server.py --layers 12 --width 768 --heads 12

Requests come with random lengths; each is padded to the next power of two and masked, so that a few
shapes serve all. The embeddings of eager mode on the request without padding are the reference.
Speeds are of the whole loop, in tokens of the requests (padding does not count), beside eager mode
and, where it is installed, ONNX Runtime.

Needs torch and transformers; onnxruntime and onnxscript for the last.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

SHORTEST = 16  # tokens of the smallest bucket


def padded(ids: Any) -> tuple[Any, Any]:
    """Return a request padded to its bucket, and the mask of its own tokens."""
    length = ids.shape[1]
    bucket = max(SHORTEST, 1 << (length - 1).bit_length())
    mask = torch.zeros(1, bucket, dtype=torch.long)
    mask[:, :length] = 1
    return torch.nn.functional.pad(ids, (0, bucket - length)), mask


def serve(run: Callable[[Any, Any], Any], requests: Sequence[Any]) -> tuple[list[Any], float]:
    """Answer all requests; return the tokens' embeddings of each, and the seconds."""
    begin = time.perf_counter()
    answers = []
    for ids in requests:
        answers.append(run(*padded(ids))[:, : ids.shape[1]])
    return answers, time.perf_counter() - begin


def with_onnxruntime(model: Any) -> Callable[[Any, Any], Any] | None:
    """Return the model exported to ONNX Runtime, or None where that is not installed."""
    if not all(map(find_spec, ("onnxruntime", "onnxscript"))):  # torch exports with the second
        return None
    import onnxruntime

    ids, mask = padded(torch.ones(1, 40, dtype=torch.long))
    sizes = {0: torch.export.Dim.STATIC, 1: torch.export.Dim("length", min=2, max=512)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bert.onnx"
        torch.onnx.export(
            model, (ids, mask), path, dynamo=True, dynamic_shapes=(sizes, sizes), verbose=False
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(ids: Any, mask: Any) -> Any:
        feeds = dict(zip(names, (ids.numpy(), mask.numpy()), strict=True))
        return torch.from_numpy(session.run(None, feeds)[0])

    return run


@torch.no_grad()
def main() -> None:
    """Serve the same requests in each way, compare the answers, print the speeds."""
    parser = argparse.ArgumentParser(description="Serve BERT for requests of any length.")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--requests", type=int, default=48)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    config = BertConfig(
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
    )
    model = BertModel(config).eval()
    lengths = torch.randint(1, options.longest + 1, (options.requests,)).tolist()
    requests = [torch.randint(0, config.vocab_size, (1, n)) for n in lengths]
    compiled = torch.compile(model, backend="nestwright", dynamic=False)
    ways: dict[str, Callable[[Any, Any], Any] | None] = {
        "eager": lambda ids, mask: model(ids, mask)[0],
        "nestwright": lambda ids, mask: compiled(ids, mask)[0],
        "onnxruntime": with_onnxruntime(model),
    }
    want = [model(ids)[0] for ids in requests]
    for way, run in ways.items():
        if run is None:
            print(f"{way:12} is not installed")
            continue
        _, first = serve(run, requests)
        answers, seconds = serve(run, requests)
        worst = max(float((a - b).abs().max()) for a, b in zip(answers, want, strict=True))
        assert worst < 1e-3, f"{way}: the embeddings differ by {worst}"
        rate = sum(lengths) / seconds
        print(f"{way:12}{rate:9.0f} tokens/s   first round {first:5.1f} s   error {worst:.0e}")


if __name__ == "__main__":
    main()
