"""The harness of the shared folder with more peers: nestwright built with options.

    python benchmarks/option_peers.py ../shared/bench accuracy=1e-5 accuracy=0.01 openvino:bf16 \\
        --realtime --threads 2 --peers torch ort nestwright --models bert_base --out new.json

What comes before the first option is the harness's folder and the builds to add, each a peer of its
own beside those of ``--peers``; a build is one or more arguments of ``nestwright.build``, or
``openvino:bf16``, ``torch:bf16`` or ``inductor:bf16``, which may multiply f32 as bf16. The rest is
what ``peers.py`` takes, and so are the environment's PEER_VENVS and NESTWRIGHT_LOGS.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

WORKER = "--worker"
PLAIN = "nestwright"


def _base(build: str) -> str:
    """Return the harness's peer that a build is a variant of."""
    return build.partition(":")[0] if ":" in build else PLAIN


def _options(build: str) -> dict[str, Any]:
    """Return the arguments that a text as ``accuracy=1e-5,weights=int8`` stands for."""
    pairs = (part.partition("=") for part in build.split(","))
    return {name: float(value) if name == "accuracy" else value for name, _, value in pairs}


def _module(folder: str, name: str) -> Any:
    sys.path.insert(0, str(Path(folder).resolve()))
    return importlib.import_module(name)


def drive(folder: str, builds: list[str], rest: list[str]) -> None:
    """Run the harness with a peer for each build, which this file serves."""
    peers = _module(folder, "peers")
    plain = peers.command

    def command(venvs: Path, venv: str, role: str, *given: Any) -> list[str]:
        found: list[str] = plain(venvs, venv, role, *given)
        if role not in builds:
            return found
        at = next(n for n, word in enumerate(found) if word.endswith("worker.py"))
        return [*found[:at], __file__, WORKER, folder, *found[at + 1 :]]

    peers.command = command
    peers.VENV |= {b: peers.VENV[_base(b)] for b in builds}
    peers.EXPORT |= {b: peers.EXPORT[_base(b)] for b in builds if _base(b) in peers.EXPORT}
    if "--peers" in rest:
        at = rest.index("--peers") + 1
        rest = [*rest[:at], *builds, *rest[at:]]
    sys.argv = ["peers.py", *rest]
    peers.main()


def serve(folder: str, build: str, rest: list[str]) -> None:
    """Be the harness's worker for one build: its own for that peer, with the options added."""
    worker, base = _module(folder, "worker"), _base(build)
    if base == PLAIN:
        import nestwright

        nestwright.build = partial(nestwright.build, **_options(build))
    else:
        PRECISION[base](build.partition(":")[2])
    vars(worker)[f"{build}_peer"] = vars(worker)[f"{base}_peer"]
    sys.argv = ["worker.py", build, *rest]
    worker.main()


def _openvino(precision: str) -> None:
    """Let OpenVINO multiply in ``precision``, whatever the harness asks for."""
    import openvino

    plain = openvino.Core.compile_model

    def compile_model(core: Any, model: Any, device: str, config: dict[str, Any]) -> Any:
        return plain(core, model, device, {**config, "INFERENCE_PRECISION_HINT": precision})

    openvino.Core.compile_model = compile_model


def _torch(precision: str) -> None:
    """Let PyTorch's library multiply f32 in ``precision``."""
    import torch

    torch.backends.mkldnn.matmul.fp32_precision = precision
    torch.backends.mkldnn.conv.fp32_precision = precision


PRECISION = {"openvino": _openvino, "torch": _torch, "inductor": _torch}


def main() -> None:
    """Drive the harness, or with ``--worker`` serve it."""
    given = sys.argv[1:]
    if given[:1] == [WORKER]:
        serve(given[1], given[2], given[3:])
        return
    first = next((n for n, word in enumerate(given) if word.startswith("--")), len(given))
    if first < 1:
        sys.exit(f"which harness?\n{__doc__}")
    drive(given[0], given[1:first], given[first:])


if __name__ == "__main__":
    main()
