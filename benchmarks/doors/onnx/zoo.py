"""Models of torchvision, timm and transformers, and some more, with random weights, as ONNX files.

::

    python benchmarks/doors/onnx/zoo.py folder                        # all of them
    python benchmarks/doors/onnx/zoo.py folder resnet18 mobilevit_s   # some

Each becomes ``folder/NAME.onnx``, for one image or sentence, beside ``folder/NAME.npz`` where its
inputs are words; ``benchmarks/doors/speed.py --onnx`` times them. Needs torch, torchvision, timm,
transformers and onnx. A model that torch does not export is named and left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import timm
import torch
import torchvision
from networks import OWN, TRANSFORMERS, Made, transformer  # benchmarks/ hides a module of theirs
from torch import nn

SIZE = 224  # pixels of an image's side, where a model has no other of its own
SEGMENTED = 320  # of an image that is segmented, or searched for objects
INCEPTION = 299  # of Inception-v3's, whose auxiliary classifier takes no less

CLASSIFIERS = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 "
    "maxvit_t mnasnet1_0 mobilenet_v3_large regnet_y_400mf resnet18 resnext50_32x4d "
    "shufflenet_v2_x1_0 squeezenet1_1 swin_t swin_v2_t vgg11_bn"
)
DETECTION = "ssdlite320_mobilenet_v3_large"
SEGMENTATION = "deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
TIMM = (
    "beitv2_base_patch16_224 botnet26t_256 cait_xxs24_224 coat_tiny coatnet_nano_rw_224 "
    "convit_tiny convmixer_768_32 convnextv2_atto crossvit_tiny_240 cs3darknet_s "
    "cspdarknet53 cspresnext50 davit_tiny deit_tiny_patch16_224 densenetblur121d dla34 "
    "dpn48b eca_botnext26ts_256 eca_nfnet_l0 ecaresnet26t edgenext_small efficientformer_l1 "
    "efficientformerv2_s0 efficientnet_es efficientvit_b0 efficientvit_m0 ese_vovnet19b_dw "
    "fasternet_t0 fastvit_t8 fbnetc_100 focalnet_tiny_srf gcresnet33ts gcvit_xxtiny gernet_s "
    "ghostnet_100 ghostnetv2_100 gmlp_s16_224 hardcorenas_a hardcorenas_f hgnetv2_b0 "
    "hiera_tiny_224 hrnet_w18_small inception_next_atto inception_next_tiny "
    "inception_resnet_v2 lambda_resnet26t lcnet_050 legacy_seresnet18 levit_128 "
    "mambaout_femto mixer_s32_224 mixnet_s mobilenetv1_100 mobilenetv4_conv_small "
    "mobileone_s0 mobilevit_s mobilevitv2_050 mvitv2_tiny nasnetalarge nest_tiny "
    "nextvit_small nfnet_l0 pit_ti_224 poolformer_s12 pvt_v2_b0 rdnet_tiny regnetx_002 "
    "regnetz_b16 repghostnet_050 repvgg_a0 repvit_m0_9 res2net50_14w_8s resmlp_12_224 "
    "resnest14d resnet26t resnetv2_50 rexnet_100 sebotnet33ts_256 selecsls42b semnasnet_075 "
    "sequencer2d_s seresnext26d_32x4d shvit_s1 skresnet18 spnasnet_100 starnet_s1 "
    "swiftformer_xs tf_efficientnet_lite0 tiny_vit_5m_224 tinynet_a tnt_s_patch16_224 "
    "tresnet_m twins_svt_small visformer_tiny vit_relpos_small_patch16_224 "
    "vit_tiny_patch16_224 vitamin_small_224 vovnet39a wide_resnet50_2 xception41 "
    "xcit_tiny_12_p16_224"
)


def models() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Yield a name, and what makes the model and what it is called with."""
    for name in CLASSIFIERS.split():
        side = INCEPTION if name.startswith("inception") else SIZE
        yield name, partial(_of_torchvision, name, side, weights=None)
    bare = {"weights": None, "weights_backbone": None}
    for name in SEGMENTATION.split():
        yield name, partial(_of_torchvision, name, SEGMENTED, **bare)
    yield DETECTION, partial(detection, SEGMENTED)
    for name in TIMM.split():
        yield name, partial(_of_timm, name)
    for name in TRANSFORMERS:
        yield name, partial(transformer, name)
    yield from OWN.items()


def _of_torchvision(name: str, side: int, **weights: None) -> Made:
    return torchvision.models.get_model(name, **weights), (torch.randn(1, 3, side, side),)


def _of_timm(name: str) -> Made:
    model = timm.create_model(name)
    return model, (torch.randn(1, *model.default_cfg["input_size"]),)


class Heads(nn.Module):
    """What a detector's heads say of each anchor, before boxes are chosen."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the offsets of boxes and the scores of labels."""
        features = self.detector.backbone(x)
        return tuple(self.detector.head(list(features.values())).values())


def detection(side: int) -> Made:
    """Return a detector without its postprocessing."""
    model = torchvision.models.get_model(DETECTION, weights=None, weights_backbone=None)
    return Heads(model), (torch.randn(1, 3, side, side),)


def filled(model: nn.Module) -> nn.Module:
    """Give a model statistics, weights and biases that are neither 0 nor 1, as trained ones are."""
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(part.running_mean, 0, 0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
        elif isinstance(part, nn.Linear | nn.Conv2d | nn.Conv1d):
            for values in (part.weight, part.bias):
                if values is not None and not values.any():
                    nn.init.normal_(values, 0, 0.02)
    return model.eval()


def export(model: nn.Module, args: tuple[torch.Tensor, ...], path: Path) -> None:
    """Write a model for these inputs, by the exporter that traces; and the inputs, if words."""
    with torch.no_grad():
        torch.onnx.export(model, args, str(path), dynamo=False, input_names=["input"])
    if not args[0].is_floating_point():
        np.savez(path.with_suffix(".npz"), input=args[0].numpy())


def main() -> None:
    """Export the models asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="all by default")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, make in models():
        if options.names and name not in options.names:
            continue
        torch.manual_seed(0)
        try:
            model, args = make()
            export(filled(model), args, options.folder / f"{name}.onnx")
        except torch.onnx.errors.OnnxExporterError as error:
            print(f"{name}: not exported: {str(error).splitlines()[0][:120]}", flush=True)
        else:
            print(name, flush=True)


if __name__ == "__main__":
    main()
