"""Warm start: from the start of a process to the first result, beside other runtimes.

    python benchmarks/warm_start.py prepare FOLDER
    python benchmarks/warm_start.py measure FOLDER --rounds 15

``prepare`` exports timm's MobileNetV2 to ONNX, builds it with its weights in it, and makes
AOTInductor's package of it where there is a C++ compiler. ``measure`` starts a fresh process for
each call, the runtimes in turn, and prints medians in milliseconds: until NumPy is imported (or
torch), until the model is loaded, until the first result, all since the process was started, and
the slowest 10 %. Files are in the page cache. A runtime that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

SHAPE = 1, 3, 224, 224
_BEGIN = "import json, sys, time; now = time.monotonic; started = float(sys.argv[2])\n"
_END = "\nprint(json.dumps([t - started for t in (base, loaded, done)]))"
CHILDREN: Mapping[str, str] = {
    "NumPy alone": "import numpy as np; base = loaded = done = now()",
    "nestwright": """
import numpy as np
base = now()
import nestwright as nw
exe = nw.load(f"{sys.argv[1]}/model.nw")
loaded = now()
exe(np.zeros(%(shape)r, np.float32))
done = now()
assert "llvmlite" not in sys.modules
""",
    "ONNX Runtime": """
import numpy as np
base = now()
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = %(threads)d
session = ort.InferenceSession(f"{sys.argv[1]}/model.onnx", options)
loaded = now()
session.run(None, {session.get_inputs()[0].name: np.zeros(%(shape)r, np.float32)})
done = now()
""",
    "ONNX Runtime, optimized file": """
import numpy as np
base = now()
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = %(threads)d
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession(f"{sys.argv[1]}/model.ort.onnx", options)
loaded = now()
session.run(None, {session.get_inputs()[0].name: np.zeros(%(shape)r, np.float32)})
done = now()
""",
    "OpenVINO": """
import numpy as np
base = now()
import openvino as ov
core = ov.Core()
options = {"INFERENCE_NUM_THREADS": %(threads)d}
model = core.compile_model(f"{sys.argv[1]}/model.onnx", "CPU", options)
loaded = now()
model(np.zeros(%(shape)r, np.float32))
done = now()
""",
    "OpenVINO, with its cache": """
import numpy as np
base = now()
import openvino as ov
core = ov.Core()
core.set_property({"CACHE_DIR": f"{sys.argv[1]}/openvino"})
options = {"INFERENCE_NUM_THREADS": %(threads)d}
model = core.compile_model(f"{sys.argv[1]}/model.onnx", "CPU", options)
loaded = now()
model(np.zeros(%(shape)r, np.float32))
done = now()
""",
    "AOTInductor": """
import torch
torch.set_num_threads(%(threads)d)
base = now()
model = torch._inductor.aoti_load_package(f"{sys.argv[1]}/model.pt2")
loaded = now()
model(torch.zeros(%(shape)r))
done = now()
""",
}
"""What a process of each runtime does; ``base``, ``loaded`` and ``done`` are times."""


def prepare(folder: Path) -> None:
    """Write the model in every runtime's form."""
    import timm
    import torch

    import nestwright as nw

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = timm.create_model("mobilenetv2_100", pretrained=False).eval()
    example = (torch.zeros(SHAPE),)
    path = folder / "model.onnx"
    torch.onnx.export(model, example, path, dynamo=True, external_data=False)
    nw.build(str(path)).save(folder / "model.nw")
    try:
        import onnxruntime as ort
    except ImportError:
        pass
    else:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(folder / "model.ort.onnx")
        ort.InferenceSession(str(path), options)
    try:
        exported = torch.export.export(model, example)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "model.pt2"))
    except Exception as error:
        print(f"no package of AOTInductor: {type(error).__name__}: {error}", file=sys.stderr)


def once(name: str, folder: Path, threads: int) -> list[float] | None:
    """Return the seconds until each stage of one process; None if it failed."""
    text = _BEGIN + CHILDREN[name] % {"shape": SHAPE, "threads": threads} + _END
    env = os.environ | {"NESTWRIGHT_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", text, str(folder), str(time.monotonic())]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        print(f"{name}: {' '.join(last)}", file=sys.stderr)
        return None
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(folder: Path, rounds: int, threads: int) -> None:
    """Print the table."""
    times: dict[str, list[list[float]]] = {}
    names = [name for name in CHILDREN if once(name, folder, threads)]  # files become cached
    for _ in range(rounds):
        for name in names:
            if (found := once(name, folder, threads)) is not None:
                times.setdefault(name, []).append(found)
    print(
        f"{'':<30}{'NumPy, torch':>14}{'loaded':>10}{'result':>10}{'90 %':>10}   ms, {rounds} runs"
    )
    for name, rows in times.items():
        stages = [median(column) * 1e3 for column in zip(*rows, strict=True)]
        slow = quantiles([row[-1] for row in rows], n=10)[-1] * 1e3
        print(f"{name:<30}{stages[0]:14.1f}{stages[1]:10.1f}{stages[2]:10.1f}{slow:10.1f}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.action == "prepare":
        prepare(given.folder)
    else:
        measure(given.folder, given.rounds, given.threads)


if __name__ == "__main__":
    main()
