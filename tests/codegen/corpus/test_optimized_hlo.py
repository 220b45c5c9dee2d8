"""Text of modules that XLA has optimized: real ones against the text before, and GPU forms.

``optimized_hlo`` has eight JAX programs (jax 0.10.2, CPU) as ``compile().as_text()`` gives them
and, as ``.before.hlo``, as they were lowered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse, show

FOLDER = Path(__file__).parent / "optimized_hlo"
NAMES = sorted(p.stem for p in FOLDER.glob("*.hlo") if ".before" not in p.stem)


def leaves(value: Any) -> list[np.ndarray]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [value]


def agree(found: Any, expected: Any) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("name", NAMES)
def test_optimized_text_computes_what_the_text_before_does(name: str) -> None:
    optimized = parse((FOLDER / f"{name}.hlo").read_text())
    before = parse((FOLDER / f"{name}.before.hlo").read_text())
    assert show(parse(show(optimized))) == show(optimized)
    args = random_arguments(before.entry, 5)
    expected = evaluate(before, args)
    agree(evaluate(optimized, args), expected)
    agree(build(optimized)(*args), expected)


GPU = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8,16]{1,0}, \
f32[16]{0})->(f32[8]{0}, f32[16,8]{0,1})}, allow_spmd_sharding_propagation_to_output={true,true}, \
input_output_alias={ {1}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }, \
frontend_attributes={fingerprint_before_lhs="0a"}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%loop (p0: f32[8,16], p1: f32[16]) -> (f32[8,16], f32[16,8]) {
  %p0 = f32[8,16]{1,0:S(1)} parameter(0)
  %p1 = f32[16]{0} parameter(1)
  %wide = f32[8,16]{1,0} broadcast(%p1), dimensions={1}
  %sum = f32[8,16]{1,0} add(%p0, %wide)
  %turned = f32[16,8]{0,1} bitcast(%sum)
  ROOT %both = (f32[8,16]{1,0}, f32[16,8]{0,1}) tuple(%sum, %turned)
}, execution_thread="main"

%input (p0: f32[8,16]) -> f32[8] {
  %p0 = f32[8,16]{1,0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %rows = f32[8]{0} reduce(%p0, %zero), dimensions={1}, to_apply=%add
}

ENTRY %main (x: f32[8,16], b: f32[16]) -> (f32[8], f32[16,8]) {
  %x = f32[8,16]{1,0} parameter(0), sharding={replicated}
  %b = f32[16]{0} parameter(1)
  %copy-start = (f32[8,16]{1,0:S(1)}, f32[8,16]{1,0}, u32[]) copy-start(%x), \
cross_program_prefetch_index=0
  %copy-done = f32[8,16]{1,0:S(1)} copy-done(%copy-start)
  %f = (f32[8,16]{1,0}, f32[16,8]{0,1}) fusion(%copy-done, %b), kind=kLoop, calls=%loop, \
backend_config={"operation_queue_id":"0","wait_on_operation_queues":[]}
  %first = f32[8,16]{1,0} get-tuple-element(%f), index=0
  %second = f32[16,8]{0,1} get-tuple-element(%f), index=1
  %rows = f32[8]{0} fusion(%first), kind=kInput, calls=%input, control-predecessors={%copy-done}
  %after = token[] after-all()
  %ordered = f32[8]{0} add-dependency(%rows, %after)
  %kept = (f32[8]{0}, f32[16,8]{0,1}) opt-barrier(\
(f32[8]{0}, f32[16,8]{0,1}) tuple(%ordered, %second))
  %a0 = f32[8]{0} get-tuple-element(%kept), index=0
  %a1 = f32[16,8]{0,1} get-tuple-element(%kept), index=1
  ROOT %out = (f32[8]{0}, f32[16,8]{0,1}) tuple(%a0, %a1)
}
"""


def test_forms_of_the_gpu_compiler() -> None:
    module = parse(GPU)
    assert show(parse(show(module))) == show(module)
    args = random_arguments(module.entry, 1)
    total = args[0] + args[1]
    for rows, turned in (evaluate(module, args), build(module)(*args)):
        np.testing.assert_allclose(rows, total.sum(1), rtol=1e-5)
        np.testing.assert_array_equal(turned, total.T)
    assert build(module)(*args)[1].strides == (4, 64), "in the layout that the header asks for"
    left = {i.opcode for c in optimize(module).computations for i in c.instructions}
    assert left <= {"parameter", "constant", "broadcast", "add", "reduce", "tuple"}


BITCASTS = [
    ("f32[6,4]{1,0}", "f32[4,6]{0,1}", lambda x: x.T),
    ("f32[6,4]{0,1}", "f32[24]{0}", lambda x: x.T.reshape(-1)),
    ("f32[2,3,4]{1,2,0}", "f32[8,3]{1,0}", lambda x: x.transpose(0, 2, 1).reshape(8, 3)),
    ("f32[6,4]{1,0}", "u8[6,4,4]{2,1,0}", lambda x: x.view(np.uint8).reshape(6, 4, 4)),
    ("u16[6,4]{1,0}", "f64[6]{0}", lambda x: x.view(np.float64)[:, 0]),
    ("f32[1,8]{1,0:T(8,128)}", "f32[8]{0:T(256)}", lambda x: x[0]),
]


@pytest.mark.parametrize(("source", "target", "meaning"), BITCASTS)
def test_bitcasts_go_by_both_layouts(source: str, target: str, meaning: Any) -> None:
    body = f"x = {source} parameter(0)\nROOT b = {target} bitcast(x)"
    header = f"entry_computation_layout={{({source.split('{')[0]})->{target.split('{')[0]}}}"
    module = parse(f"HloModule m, {header}\nENTRY e {{ {body} }}")
    (x,) = random_arguments(module.entry, 2)
    np.testing.assert_array_equal(evaluate(module, [x]), meaning(x))
    np.testing.assert_array_equal(build(module)(x), meaning(x))


@pytest.mark.parametrize(
    "target", ["__onednn$matmul", "__cublas$lt$matmul", "__cudnn$convForward", "__triton$x"]
)
def test_private_calls_are_refused_by_name(target: str) -> None:
    text = f'HloModule m\nENTRY e {{ x = f32[4] parameter(0)\nROOT r = f32[4] custom-call(x), custom_call_target="{target}" }}'  # noqa: E501
    with pytest.raises(UnsupportedError) as caught:
        build(parse(text))
    (found,) = caught.value.findings
    assert target in found.reason and "before optimizations" in found.hint
