"""ONNX models whose weights have 4 bits, and a scale for each block of 32: MatMulNBits.

A product of 4096 x 4096, and a decoder of language models, with random weights, as ``models.py``
writes them to files. ``accuracy_level`` 4 lets rows be rounded to 8 bits, 0 does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Inputs = Mapping[str, Any]

BLOCK = 32
DOMAIN = "com.microsoft"
BYTES = 4  # the accuracy level


@dataclass
class Graph:
    """Nodes and weights of a model while it is written."""

    level: int = BYTES
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        """Add a weight; return its name."""
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its first result."""
        self.nodes.append(helper.make_node(kind, inputs, list(outputs), **attributes))
        return outputs[0]

    def product(self, x: str, terms: int, columns: int, name: str) -> str:
        """Add ``x[.., terms]`` times weights of 4 bits."""
        codes = self.rng.integers(0, 256, (columns, terms // BLOCK, BLOCK // 2)).astype(np.uint8)
        scale = 0.13 / terms**0.5 * self.rng.uniform(0.8, 1.2, (columns, terms // BLOCK))
        weights = [
            self.constant(f"{name}_codes", codes),
            self.constant(f"{name}_scales", scale.astype(np.float32)),
        ]
        options = {"K": terms, "N": columns, "bits": 4, "block_size": BLOCK}
        options["accuracy_level"] = self.level
        return self.node("MatMulNBits", [x, *weights], name, domain=DOMAIN, **options)

    def write(self, path: Path, inputs: Inputs, outputs: Mapping[str, tuple[int, ...]]) -> Inputs:
        """Write the model of ``inputs`` to a file; return them."""
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in inputs.items()
        ]
        made = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, path.stem, given, made, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
        return inputs


def product(rows: int, level: int, path: Path) -> Inputs:
    """Write a product of some rows by 4096 x 4096."""
    graph = Graph(level)
    graph.product("x", 4096, 4096, "y")
    x = np.random.default_rng(1).standard_normal((rows, 4096)).astype(np.float32)
    return graph.write(path, {"x": x}, {"y": (rows, 4096)})


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder of language models."""

    layers: int = 4
    width: int = 2048
    heads: int = 32
    key_heads: int = 8
    hidden: int = 5632
    words: int = 32000


def decoder(tokens: int, past: int, path: Path, sizes: Decoder = Decoder()) -> Inputs:
    """Write a decoder that is given ``tokens`` after ``past`` others."""
    graph, rng = Graph(), np.random.default_rng(1)
    each = sizes.width // sizes.heads
    whole = past + tokens
    inputs: dict[str, Any] = {"ids": rng.integers(0, sizes.words, (1, tokens))}
    inputs["last"] = np.array([whole - 1], np.int32)
    outputs = {"logits": (1, tokens, sizes.words)}
    turns = np.outer(np.arange(whole), 1e4 ** (-np.arange(each // 2) / (each // 2)))
    for name, value in {
        "words": 0.02 * graph.rng.standard_normal((sizes.words, sizes.width)),
        "cos": np.cos(turns),
        "sin": np.sin(turns),
        "ones": np.ones(sizes.width),
    }.items():
        graph.constant(name, value.astype(np.float32))
    graph.constant("whole", np.array(whole, np.int32))
    x = graph.node("Gather", ["words", "ids"], "embedded")
    for n in range(sizes.layers):
        for kind in "kv":
            dims = 1, sizes.key_heads, past, each
            inputs[f"past_{kind}{n}"] = rng.standard_normal(dims).astype(np.float32)
            outputs[f"new_{kind}{n}"] = (1, sizes.key_heads, whole, each)
        x = _layer(graph, sizes, n, x)
    x = graph.node("SimplifiedLayerNormalization", [x, "ones"], "last_norm", epsilon=1e-5)
    graph.product(x, sizes.width, sizes.words, "logits")
    return graph.write(path, inputs, outputs)


def _layer(graph: Graph, sizes: Decoder, n: int, x: str) -> str:
    """Add a layer: attention of grouped queries, and a gated product."""
    width, keys = sizes.width, sizes.key_heads * (sizes.width // sizes.heads)
    norm = "SimplifiedLayerNormalization"
    y = graph.node(norm, [x, "ones"], f"norm{n}", epsilon=1e-5)
    parts = [
        graph.product(y, width, columns, f"{name}{n}")
        for name, columns in {"query": width, "key": keys, "value": keys}.items()
    ]
    given = [*parts, f"past_k{n}", f"past_v{n}", "last", "whole", "cos", "sin"]
    results = f"attended{n}", f"new_k{n}", f"new_v{n}"
    options = {"num_heads": sizes.heads, "kv_num_heads": sizes.key_heads, "do_rotary": 1}
    y = graph.node("GroupQueryAttention", given, *results, domain=DOMAIN, **options)
    x = graph.node("Add", [x, graph.product(y, width, width, f"out{n}")], f"sum{n}")
    y = graph.node(norm, [x, "ones"], f"second_norm{n}", epsilon=1e-5)
    gate = graph.product(y, width, sizes.hidden, f"gate{n}")
    gate = graph.node("Mul", [gate, graph.node("Sigmoid", [gate], f"sigmoid{n}")], f"silu{n}")
    y = graph.node("Mul", [gate, graph.product(y, width, sizes.hidden, f"up{n}")], f"gated{n}")
    return graph.node("Add", [x, graph.product(y, sizes.hidden, width, f"down{n}")], f"layer{n}")
