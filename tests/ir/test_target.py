"""Target specs: what they mean, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace

import llvmlite.binding as llvm
import pytest
from llvmlite.binding.targets import FeatureMap

from nestwright.ir import gpus
from nestwright.ir.dtypes import bf16, f32, f64
from nestwright.ir.errors import TargetError
from nestwright.ir.target import Target, with_arithmetic
from nestwright.ir.targets import cpu, processor
from nestwright.ir.targets.features import features_of


def test_named_processor_needs_no_such_machine() -> None:
    t = Target.parse("cpu -mcpu=znver4 -threads=3")
    assert (t.kind, t.cpu, t.vector_bits, t.registers, t.threads) == ("cpu", "znver4", 512, 32, 3)
    assert (t.lanes(f32), t.lanes(f64), t.lanes(bf16)) == (16, 8, 32)


def test_a_name_that_some_llvms_have_for_several_features_is_none(monkeypatch) -> None:
    """LLVM 20 lists evex512 where AVX-512 is; the kernel and later versions of LLVM do not."""
    found = {"avx2": True, "avx512f": True, "evex512": True, "avx10.1-512": True}
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: FeatureMap(found))
    monkeypatch.setattr(processor, "features_here", lambda: frozenset({"avx2", "avx512f"}))
    _, _, attributes, features = cpu._host.__wrapped__()
    assert features == {"avx2", "avx512f"} and "+evex512" in attributes
    assert processor.lacking(found, "x86_64") == (), "built before, with the names in its record"


def test_other_architecture() -> None:
    t = Target.parse("llvm -mtriple=arm64-linux-gnu -mcpu=neoverse-v1")
    assert t.triple == "aarch64-linux-gnu"
    assert (t.machine, t.vector_bits, t.registers) == ("aarch64", 128, 32)


def test_gpu_by_name() -> None:
    t = Target.parse("cuda -arch=sm_90a")
    assert (t.kind, t.cpu, t.is_gpu, t.machine) == ("cuda", "sm_90a", True, "nvptx64")
    assert (t.gpu.sm, t.gpu.exact, t.gpu.shared_per_block) == (90, True, 227 << 10)
    assert (t.lanes(f32), t.lanes(f64), t.lanes(bf16)) == (4, 2, 8)
    assert Target.parse(t.spec) == t


def test_a_cpu_is_no_gpu() -> None:
    t = Target.parse("cpu")
    assert not t.is_gpu
    assert t.host is t
    with pytest.raises(TargetError, match="is not a GPU"):
        t.gpu  # noqa: B018


def test_a_simulated_gpu_runs_on_this_processor() -> None:
    t = Target.parse("cuda-sim")
    assert (t.kind, t.cpu, t.is_gpu, t.is_host) == ("cuda-sim", "sm_80", True, True)
    assert t.host == Target.parse("cpu")
    assert Target.parse("cuda-sim -arch=sm_75 -tf32=0").gpu.sm == 75


def test_keys_of_gpus_differ() -> None:
    specs = [
        f"{kind} -arch={arch}{tf32}"
        for kind in ("cuda", "cuda-sim")
        for arch in gpus.GPUS
        for tf32 in ("", " -tf32=1")
    ]
    assert len({Target.parse(s).key for s in specs}) == len(specs)
    assert Target.parse("cuda -arch=sm_80 -tf32=0").key == "cuda-sm_80"


@pytest.mark.parametrize(
    ("number", "arch"),
    [(75, "sm_75"), (87, "sm_86"), (90, "sm_90a"), (103, "sm_103a"), (121, "sm_120"), (70, "")],
)
def test_the_gpu_that_is_here(monkeypatch: pytest.MonkeyPatch, number: int, arch: str) -> None:
    monkeypatch.setattr("nestwright.ir.targets.cuda.capability", lambda: number)
    if arch:
        assert Target.parse("cuda").spec == f"cuda -arch={arch}"
    else:
        with pytest.raises(TargetError, match=r"capability is 7\.0"):
            Target.parse("cuda")


def test_no_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    gpus.capability.cache_clear()
    gpus.runs_here.cache_clear()
    try:
        with pytest.raises(TargetError, match=r"no NVIDIA GPU here.*\n.*cuda -arch=sm_90"):
            Target.parse("cuda")
        assert not Target.parse("cuda -arch=sm_80").is_host
    finally:
        gpus.capability.cache_clear()
        gpus.runs_here.cache_clear()


def test_what_runs_on_which_device() -> None:
    runs = {arch for arch, gpu in gpus.GPUS.items() if gpu.runs_on(90)}
    assert runs == {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"}


def test_a_feature_taken_away_takes_those_that_build_on_it() -> None:
    t = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -mattr=-avx512f")
    assert t.vector_bits == 256
    assert not any(f.startswith("avx512") for f in t.features)


def test_host_is_this_machine() -> None:
    t = Target.parse("cpu")
    assert t.is_host
    assert t.features
    assert Target.parse(t.spec) == t
    assert Target.parse(t) is t


def test_key_does_not_depend_on_threads() -> None:
    a, b = (Target.parse(f"cpu -mcpu=x86-64 -mtriple=x86_64-linux-gnu -threads={n}") for n in "12")
    assert a.key == b.key
    assert a.key != Target.parse("cpu -mcpu=haswell -mtriple=x86_64-linux-gnu").key


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_NUM_THREADS", "7")
    assert Target.parse("cpu").threads == 7
    monkeypatch.setenv("NESTWRIGHT_NUM_THREADS", "many")
    with pytest.raises(TargetError, match="NESTWRIGHT_NUM_THREADS='many'"):
        Target.parse("cpu")


X86 = "llvm -mtriple=x86_64-linux-gnu"


@pytest.mark.parametrize(
    ("machine", "feature"), [("x86_64", "amx-tile"), ("aarch64", "sve2"), ("riscv64", "zvfh")]
)
def test_features_are_those_that_llvm_knows(machine: str, feature: str) -> None:
    spec = f"llvm -mtriple={machine}-linux-gnu -mattr=+{feature}"
    assert feature in Target.parse(spec).features
    with pytest.raises(TargetError, match=f"unknown feature '{feature}1x'(.|\n)*did you mean '"):
        Target.parse(f"{spec}1x")


def test_without_llvm_any_feature_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestwright.ir.targets.features.sys.executable", "/nowhere/python")
    features_of.cache_clear()
    assert "foo" in Target.parse(f"{X86} -mattr=+foo").features
    features_of.cache_clear()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "starts with cpu, llvm, cuda or cuda-sim"),
        ("cpuu", "did you mean 'cpu'"),
        ("cpu -mcpu=znver9", "did you mean 'znver"),
        ("cpu -mcp=znver4", "did you mean 'mcpu'"),
        ("cpu -mcpu=", "has no value"),
        ("cpu -mcpu=x86-64 -mcpu=x86-64", "is given twice"),
        ("llvm -mtriple=sparc-sun-solaris", "unknown architecture 'sparc'"),
        ("llvm -mtriple=x86_64", "is not a triple"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=avx2", "bad feature 'avx2'"),
        (f"{X86} -mattr=+foo", "unknown feature 'foo' for x86_64"),
        (f"{X86} -mattr=-avx512_bf16", "did you mean 'avx512bf16' or 'avx512fp16' or"),
        (f"{X86} -mattr=+sve", "unknown feature 'sve' for x86_64"),
        (f"{X86} -mattr=+avx2,-sse2", "-mattr=-sse2: programs for x86_64 have this feature"),
        (f"{X86} -mattr=+32bit-mode", "do not have this feature"),
        ("cuda -arch=sm_91", "did you mean 'sm_90"),
        ("cuda -arch=sm_70", "too old"),
        ("cuda -arch=80", "unknown GPU architecture"),
        ("cuda-sim -tf32=2", "it is 0 or 1"),
        ("cpu " + "x" * 600, "604 characters"),
        ("cpu -threads=0", "an integer from 1"),
    ],
)
def test_refused(spec: str, message: str) -> None:
    with pytest.raises(TargetError, match=message.replace("(", r"\(")):
        Target.parse(spec)


def test_figures_of_gpus_go_together() -> None:
    for gpu in gpus.GPUS.values():
        lanes = 64 if gpu.sm in (75, 80) else 128
        peak = gpu.multiprocessors * lanes * 2 * gpu.clock
        assert abs(peak / gpu.f32_flops - 1) < 0.05, gpu
        assert gpu.shared_per_block <= gpu.shared_per_multiprocessor
        assert gpu.threads_per_multiprocessor % gpu.warp == 0
        assert all(rate >= gpu.f32_flops * 0.99 for rate in gpu.tensor_flops.values())


def test_accuracy_is_an_option_that_names_the_target_in_logs() -> None:
    plain, loose = Target.parse("cpu -threads=2"), Target.parse("cpu -threads=2 -accuracy=1e-5")
    assert plain.accuracy == 0 and loose.accuracy == 1e-5
    assert loose.key == f"{plain.key}-accuracy1e-05"
    assert with_arithmetic("cpu -threads=2", 1e-5) == replace(
        loose, spec="cpu -threads=2 -accuracy=1e-05"
    )
    assert with_arithmetic(plain, None) is plain and with_arithmetic(plain, 0) is plain
    for bad in ("1", "-1", "nan", "many"):
        with pytest.raises(TargetError, match=r"a number from 0 to 0\.03"):
            Target.parse(f"cpu -accuracy={bad}")
    with pytest.raises(TargetError, match="unknown option"):
        with_arithmetic("cuda -arch=sm_90a", 1e-5)
    with pytest.raises(TargetError, match="given twice"):
        with_arithmetic(loose, 1e-4)
