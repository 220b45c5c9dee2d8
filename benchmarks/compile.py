"""Seconds that building takes, stage by stage, for the models of the corpus beside this repository.

Nothing is tuned and nothing is cached::

    python benchmarks/compile.py bert_base_forward resnet50_keras_forward
"""

from __future__ import annotations

import sys
import time

from side_by_side import ROOT

import nestwright as nw
from nestwright.codegen.targets.timings import STAGES

MODELS = ROOT.parent / "shared/corpus/models"
USUAL = (
    "mnist_mlp_train_step",
    "bert_tiny_forward",
    "vit_tiny_forward",
    "mobilenet_v2_keras_forward",
    "resnet50_keras_forward",
    "bert_base_forward",
)


def main() -> int:
    """Print one row per model; 1 where the corpus is absent."""
    if not MODELS.is_dir():
        print(f"no corpus at {MODELS}", file=sys.stderr)
        return 1
    print(f"{'':28}{'all':>8}" + "".join(f"{s:>9}" for s in STAGES))
    for name in sys.argv[1:] or USUAL:
        spent: dict[str, float] = {}
        start = time.perf_counter()
        nw.build(MODELS / f"{name}.hlo", timings=spent, cache=False)
        total = time.perf_counter() - start
        print(f"{name:28}{total:8.2f}" + "".join(f"{spent.get(s, 0.0):9.2f}" for s in STAGES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
