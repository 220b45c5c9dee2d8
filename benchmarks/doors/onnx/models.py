"""ONNX models of usual sizes with random weights, as exporters and quantizers write them.

::

    python benchmarks/doors/onnx/models.py folder            # all of them
    python benchmarks/doors/onnx/models.py folder bert yolo  # some

Each becomes ``folder/NAME.onnx`` beside ``folder/NAME.npz``, which has its inputs. Needs torch,
timm, transformers and onnxscript; quantized ones need onnxruntime too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn

from doors.onnx.blocks import BYTES, decoder, product
from doors.torch.models import MODELS, Workload, whisper_config

Inputs = Mapping[str, Any]


def exported(workload: Workload, path: Path, **options: Any) -> Inputs:
    """Write a torch model by torch's exporter; return its inputs by the file's names."""
    model, args, named = workload.model.eval(), workload.args, dict(workload.named)
    with torch.no_grad():
        torch.onnx.export(model, args, str(path), kwargs=named or None, **options)
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {w.name for w in graph.initializer}
    names = [i.name for i in graph.input if i.name not in weights]
    arrays = [x.numpy() for x in (*args, *named.values()) if isinstance(x, torch.Tensor)]
    return dict(zip(names, arrays, strict=True))


def _of_torch(name: str) -> Callable[..., Inputs]:
    return lambda path, **options: exported(MODELS[name](False), path, **options)


class _Last(nn.Module):
    """A network of transformers, of whose results the first counts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)[0]


def _gpt2(path: Path) -> Inputs:
    workload = MODELS["gpt2"](False)
    workload.model.config.use_cache = False
    return exported(Workload(_Last(workload.model), workload.args), path)


def _whisper_encoder(path: Path) -> Inputs:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    model = _Last(WhisperEncoder(whisper_config(False)).eval())
    sound = torch.randn(1, model.model.config.num_mel_bins, 3000)
    return exported(Workload(model, (sound,)), path)


def _lstm(path: Path) -> Inputs:
    """By the older exporter, which writes LSTM nodes."""
    return exported(MODELS["lstm"](False), path, dynamo=False)


def _of_timm(name: str, **options: Any) -> Callable[..., Inputs]:
    """A network for images of 224 by 224 pixels."""

    def written(path: Path, **more: Any) -> Inputs:
        import timm

        model = timm.create_model(name, pretrained=False, **options)
        return exported(Workload(model, (torch.randn(1, 3, 224, 224),)), path, **more)

    return written


def _prepared(write: Callable[..., Inputs], path: Path) -> Inputs:
    """Write a model whole, with its batch normalization folded, as quantizers want it."""
    from onnxruntime import quantization

    inputs = write(path, external_data=False)
    quantization.quant_pre_process(str(path), str(path), skip_symbolic_shape=True)
    return inputs


def _static(write: Callable[..., Inputs]) -> Callable[[Path], Inputs]:
    """A model in 8 bits, with QuantizeLinear and DequantizeLinear around its operators."""

    def written(path: Path) -> Inputs:
        from onnxruntime import quantization

        plain = path.with_suffix(".float.onnx")
        inputs = _prepared(write, plain)

        class Samples(quantization.CalibrationDataReader):
            rows = iter([inputs])

            def get_next(self) -> Inputs | None:
                return next(self.rows, None)

        quantization.quantize_static(
            str(plain),
            str(path),
            Samples(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        plain.unlink()
        return inputs

    return written


def _dynamic(write: Callable[..., Inputs]) -> Callable[[Path], Inputs]:
    """A model whose products are of 8 bits, their left operands quantized by their own range."""

    def written(path: Path) -> Inputs:
        from onnxruntime import quantization

        plain = path.with_suffix(".float.onnx")
        inputs = _prepared(write, plain)
        quantization.quantize_dynamic(
            str(plain), str(path), weight_type=quantization.QuantType.QInt8, per_channel=True
        )
        plain.unlink()
        return inputs

    return written


class _Block(nn.Module):
    """A convolution, normed, with SiLU."""

    def __init__(self, into: int, out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Any) -> Any:
        return nn.functional.silu(self.norm(self.conv(x)))


class _Stage(nn.Module):
    """Half the size, twice the channels; then two residual blocks of half of them."""

    def __init__(self, into: int) -> None:
        super().__init__()
        self.down = _Block(into, 2 * into, 3, 2)
        self.split = _Block(2 * into, 2 * into)
        self.inner = nn.ModuleList(
            nn.Sequential(_Block(into, into, 3), _Block(into, into, 3)) for _ in range(2)
        )
        self.join = _Block(4 * into, 2 * into)

    def forward(self, x: Any) -> Any:
        parts = list(self.split(self.down(x)).chunk(2, 1))
        for block in self.inner:
            parts.append(parts[-1] + block(parts[-1]))
        return self.join(torch.cat(parts, 1))


class Detector(nn.Module):
    """Boxes ``[1, n, 4]`` and scores ``[1, classes, n]`` by three scales of a backbone."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = _Block(3, width, 3, 2)
        self.stages = nn.ModuleList(_Stage(width * 2**k) for k in range(4))
        self.up = _Block(24 * width, 8 * width)
        widths = (4 * width, 8 * width, 16 * width)
        self.heads = nn.ModuleList(
            nn.Sequential(_Block(w, 4 * width, 3), nn.Conv2d(4 * width, 4 + classes, 1))
            for w in widths
        )

    def forward(self, x: Any) -> Any:
        levels = [self.stem(x)]
        for stage in self.stages:
            levels.append(stage(levels[-1]))
        near, middle, far = levels[2:]
        middle = self.up(torch.cat([nn.functional.interpolate(far, scale_factor=2.0), middle], 1))
        boxes, scores = [], []
        for head, level in zip(self.heads, (near, middle, far), strict=True):
            side, found = level.shape[-1], head(level).flatten(2)
            at = torch.arange(side, dtype=torch.float32) + 0.5
            center = torch.stack(torch.meshgrid(at, at, indexing="ij")).flatten(1)
            low, high = found[:, :2].sigmoid() * 2, found[:, 2:4].sigmoid() * 2
            boxes.append(torch.cat([center - low, center + high], 1) * (x.shape[-1] / side))
            scores.append(found[:, 4:].sigmoid())
        return torch.cat(boxes, 2).transpose(1, 2), torch.cat(scores, 2)


def _yolo(path: Path) -> Inputs:
    """A detector of 640 by 640 images whose best boxes a NonMaxSuppression chooses."""
    inputs = exported(Workload(Detector(16, 80), (torch.randn(1, 3, 640, 640),)), path)
    model = onnx.load(str(path))
    given = {"most": np.array([100]), "overlap": np.float32([0.5]), "least": np.float32([0.53])}
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in given.items())
    names = [o.name for o in model.graph.output]
    model.graph.node.append(helper.make_node("NonMaxSuppression", [*names, *given], ["chosen"]))
    chosen = helper.make_tensor_value_info("chosen", onnx.TensorProto.INT64, ["n", 3])
    model.graph.output.append(chosen)
    onnx.save(model, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
    return inputs


WRITERS: Mapping[str, Callable[[Path], Inputs]] = {
    **{n: _of_torch(n) for n in ("resnet50", "mobilenetv3", "efficientnet", "vit", "swin")},
    "bert": _of_torch("bert"),
    "gpt2": _gpt2,
    "unet": _of_torch("unet"),
    "whisper_encoder": _whisper_encoder,
    "lstm": _lstm,
    "mobilenetv2_qdq": _static(_of_timm("mobilenetv2_100")),
    "resnet50_qdq": _static(_of_timm("resnet50", zero_init_last=False)),
    "vit_qdq": _static(_of_torch("vit")),
    "bert_dynamic": _dynamic(_of_torch("bert")),
    "yolo": _yolo,
    **{f"int4_product_{n}": partial(product, n, BYTES) for n in (1, 4, 16, 128)},
    **{f"int4_product_{n}_f32": partial(product, n, 0) for n in (1, 4, 16, 128)},
    "int4_step": partial(decoder, 1, 512),
    "int4_prefill": partial(decoder, 128, 16),
}
"""By name: the function that writes the model's file and returns its inputs."""


def main() -> None:
    """Write the models that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(WRITERS)}; all by default")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or WRITERS:
        torch.manual_seed(0)
        inputs = WRITERS[name](options.folder / f"{name}.onnx")
        np.savez(options.folder / f"{name}.npz", **inputs)


if __name__ == "__main__":
    main()
