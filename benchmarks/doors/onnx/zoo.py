"""Image models of torchvision and timm with random weights, as ONNX files.

::

    python benchmarks/doors/onnx/zoo.py folder                        # all of them
    python benchmarks/doors/onnx/zoo.py folder resnet18 mobilevit_s   # some

Each becomes ``folder/NAME.onnx``, for one image; ``benchmarks/doors/speed.py --onnx`` times them.
Needs torch, torchvision, timm and onnx. A model that torch does not export is named and left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import timm
import torch
import torchvision
from torch import nn

SIZE = 224  # pixels of an image's side, where a model has no other of its own
SEGMENTED = 320  # of an image that is segmented
INCEPTION = 299  # of Inception-v3's, whose auxiliary classifier takes no less

CLASSIFIERS = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 "
    "maxvit_t mnasnet1_0 mobilenet_v3_large regnet_y_400mf resnet18 resnext50_32x4d "
    "shufflenet_v2_x1_0 squeezenet1_1 swin_t swin_v2_t vgg11_bn"
)
SEGMENTATION = "deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
TIMM = (
    "botnet26t_256 cait_xxs24_224 coat_tiny convmixer_768_32 cspdarknet53 deit_tiny_patch16_224 "
    "dla34 ecaresnet26t edgenext_small efficientformer_l1 fastvit_t8 gcresnet33ts ghostnet_100 "
    "hardcorenas_a hrnet_w18_small inception_next_tiny lambda_resnet26t levit_128 mambaout_femto "
    "mixer_s32_224 mobilenetv4_conv_small mobileone_s0 mobilevit_s nfnet_l0 poolformer_s12 "
    "pvt_v2_b0 repghostnet_050 repvgg_a0 res2net50_14w_8s rexnet_100 selecsls42b sequencer2d_s "
    "skresnet18 starnet_s1 tf_efficientnet_lite0 tinynet_a tnt_s_patch16_224 twins_svt_small "
    "vovnet39a xcit_tiny_12_p16_224"
)


def models() -> Iterator[tuple[str, Callable[[], nn.Module], int]]:
    """Yield a name, what makes the model, and the pixels of a side of its image, 0 if it knows."""
    for name in CLASSIFIERS.split():
        side = INCEPTION if name.startswith("inception") else SIZE
        yield name, partial(torchvision.models.get_model, name, weights=None), side
    bare = {"weights": None, "weights_backbone": None}
    for name in SEGMENTATION.split():
        yield name, partial(torchvision.models.get_model, name, **bare), SEGMENTED
    for name in TIMM.split():
        yield name, partial(timm.create_model, name), 0


def filled(model: nn.Module) -> nn.Module:
    """Give a model statistics and weights that are neither 0 nor 1, as trained ones are."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, 0, 0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
        elif isinstance(part, nn.Linear | nn.Conv2d) and not part.weight.any():
            nn.init.normal_(part.weight, 0, 0.02)
    return model.eval()


def export(model: nn.Module, side: int, path: Path) -> None:
    """Write a model for one image, by the exporter that traces."""
    side = side or model.default_cfg["input_size"][-1]
    image = torch.randn(1, 3, side, side)
    with torch.no_grad():
        torch.onnx.export(model, (image,), str(path), dynamo=False, input_names=["image"])


def main() -> None:
    """Export the models asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="all by default")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, make, side in models():
        if options.names and name not in options.names:
            continue
        torch.manual_seed(0)
        try:
            export(filled(make()), side, options.folder / f"{name}.onnx")
        except torch.onnx.errors.OnnxExporterError as error:
            print(f"{name}: not exported: {str(error).splitlines()[0][:120]}", flush=True)
        else:
            print(name, flush=True)


if __name__ == "__main__":
    main()
