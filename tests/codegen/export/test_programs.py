"""Programs of C and C++ that use a model's library compute what Python does, bit for bit."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw

from .conftest import Library, W, X, built, library, need, ran, run, same, wanted

HERE = Path(__file__).parent
V3 = "cpu -mcpu=x86-64-v3 -threads=2"  # valgrind knows no wider vectors
V2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2"
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="valgrind is run on x86-64")


@pytest.mark.parametrize("weights", ["object", "file"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_example_gives_what_python_gives(weights: str, threads: int, tmp_path: Path) -> None:
    one = library(tmp_path, weights=weights, threads=threads)
    program = one.program(one.folder / "main.c", threads=threads > 1)
    options = ["-w", one.weights] if weights == "file" else []
    assert same(ran(one, program, *options), wanted(one))
    assert same(ran(one, program, *options, "-r", 30, "-t", min(threads, 2)), wanted(one))
    need("ldd")
    needed = [line.split()[0] for line in run("ldd", program).splitlines()]
    allowed = ("linux-vdso", "libc.", "libm.", "libpthread.", "/lib64/ld-", "/lib/ld-")
    assert [name for name in needed if not name.startswith(allowed)] == []


def test_the_example_reads_bare_elements_and_other_orders(tmp_path: Path) -> None:
    one = library(tmp_path)
    program = one.program(one.folder / "main.c")
    ran(one, program)
    expected = wanted(one)
    raw, columns = tmp_path / "x.raw", tmp_path / "columns.npy"
    raw.write_bytes(X.tobytes())
    np.save(columns, np.asfortranarray(X))
    for path in (raw, columns):
        out = tmp_path / "o"
        out.mkdir(exist_ok=True)
        run(program, "-o", out, path)
        assert same([np.load(out / f"result_{n}.npy") for n in (0, 1)], expected)


def test_the_example_refuses_other_inputs(tmp_path: Path) -> None:
    one = library(tmp_path)
    program = one.program(one.folder / "main.c")
    np.save(tmp_path / "shape.npy", X.T)
    np.save(tmp_path / "type.npy", X.view(np.int32))
    (tmp_path / "short.raw").write_bytes(X.tobytes()[:-4])
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{'descr': '<f4'")
    for name in ("shape.npy", "type.npy", "short.raw", "cut.npy"):
        assert "not an array of the input's type" in run(program, tmp_path / name, status=1)
    checked = one.program(one.folder / "main.c", flags=["-fsanitize=address"])
    assert "not an array of the input's type" in run(checked, tmp_path / "cut.npy", status=1)
    assert "cannot be read" in run(program, tmp_path / "nowhere", status=1)
    assert "input 0: x, f32[33,70]" in run(program, status=2)
    for option in ("-r", "-t"):
        for number in ("-1", "3x", "", "99999999999"):
            assert "usage" in run(program, "-z", option, number, status=2)
    assert "cannot be written" in run(program, "-z", "-o", tmp_path / "none", status=1)


def test_instances_in_threads(tmp_path: Path) -> None:
    one = library(tmp_path)
    assert run(one.program(HERE / "threads.c")) == "good\n"


def test_instances_in_threads_without_a_race_or_leak(tmp_path: Path) -> None:
    one = library(tmp_path)
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    assert run(one.program(HERE / "threads.c", flags=flags)) == "good\n"


SORT = """HloModule net
less { a = f32[] parameter(0)  b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT }
ENTRY main { x = f32[8,4096] parameter(0)
 ROOT y = f32[8,4096] sort(x), dimensions={1}, to_apply=less }
"""


def test_private_memory_of_kernels_is_freed(tmp_path: Path) -> None:
    exe = nw.build(nw.parse(SORT), target="cpu -threads=2")
    assert "@nw_scratch" in exe.as_text("llvm")
    exe.export_c(tmp_path / "net", name="net")
    one = Library(tmp_path / "net", "net", exe)
    run(one.program(HERE / "scratch.c", flags=["-fsanitize=address"]))


@pytest.mark.parametrize("source", ["forked.c", "unused.c", "fewer.c"])
def test_children_of_fork_and_too_few_threads(source: str, tmp_path: Path) -> None:
    one = library(tmp_path)
    run("timeout", 60, one.program(HERE / source))


def test_two_models_in_one_program(tmp_path: Path) -> None:
    left, right = library(tmp_path, "left"), library(tmp_path, "right")
    run(left.program(HERE / "two.c", right))


def test_the_wrapper_for_cpp(tmp_path: Path) -> None:
    one = library(tmp_path, weights="file")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    said = run(one.program(HERE / "wrapper.cpp", flags=flags, compiler="g++"), one.weights)
    assert said.splitlines() == [
        "x has 3 elements, and the model's has 2310",
        "the weights are not given, or their file cannot be mapped (see errno)",
    ]


def test_weights_of_another_training(tmp_path: Path) -> None:
    """The same model with other values in its weights takes the same library."""
    one = library(tmp_path, weights="file")
    other = built("net", values=np.cos(W))
    other.export_c(tmp_path / "other", name="net", weights="file")
    weights = tmp_path / "other/share/net/net.weights"
    assert same(ran(one, one.program(one.folder / "main.c"), "-w", weights), list(other(X)))


def test_weights_are_checked(tmp_path: Path) -> None:
    one = library(tmp_path, weights="file")
    data = bytearray(one.weights.read_bytes())
    data[-1] ^= 1
    (tmp_path / "damaged.weights").write_bytes(data)
    run(one.program(HERE / "weights.c"), one.weights, tmp_path / "damaged.weights")
    program = one.program(one.folder / "main.c")
    other = library(tmp_path / "other", weights="file", target=V2)
    for path, why in {
        tmp_path / "nowhere": "cannot be mapped",
        one.folder / "main.c": "not a file of weights",
        other.weights: "another model or another build",
    }.items():
        assert why in run(program, "-z", "-w", path, status=1)


@x86
@pytest.mark.parametrize("weights", ["object", "file"])
def test_valgrind_finds_nothing(weights: str, tmp_path: Path) -> None:
    need("valgrind")
    one = library(tmp_path, target=V3, weights=weights)
    program = one.program(one.folder / "main.c")
    options = ["-w", one.weights] if weights == "file" else []
    valgrind = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
    valgrind += ["--show-leak-kinds=all", "--errors-for-leak-kinds=all"]
    assert same(ran(one, program, "-t", 2, *options, before=valgrind), wanted(one))


@x86
def test_a_processor_without_the_instructions(tmp_path: Path) -> None:
    """Valgrind's processor has no AVX-512, whatever the machine has."""
    need("valgrind")
    one = library(tmp_path, target="cpu -mcpu=x86-64-v4 -threads=1")
    program = one.program(one.folder / "main.c", threads=False)
    assert "this processor lacks instructions" in run("valgrind", "-q", program, "-z", status=1)


@pytest.mark.parametrize("weights", ["object", "file"])
def test_cmake(weights: str, tmp_path: Path) -> None:
    need("cmake", "gcc")
    one = library(tmp_path, weights=weights)
    run("cmake", "-S", one.folder, "-B", tmp_path / "own")
    run("cmake", "--build", tmp_path / "own")
    options = ["-w", one.weights] if weights == "file" else []
    assert same(ran(one, tmp_path / "own" / "net_main", *options), wanted(one))
    for how, found in {
        "find": f"set(CMAKE_PREFIX_PATH {one.folder})\nfind_package(net REQUIRED)",
        "add": f"add_subdirectory({one.folder} net)",
    }.items():
        user = tmp_path / how
        user.mkdir()
        lines = ["cmake_minimum_required(VERSION 3.13)", "project(user LANGUAGES C)", found]
        lines += [f"add_executable(user {one.folder / 'main.c'})"]
        lines += ["target_link_libraries(user PRIVATE net::net)"]
        (user / "CMakeLists.txt").write_text("\n".join(lines))
        run("cmake", "-S", user, "-B", user / "build")
        run("cmake", "--build", user / "build")
        assert same(ran(one, user / "build" / "user", *options), wanted(one))


def test_pkg_config(tmp_path: Path) -> None:
    need("pkg-config", "gcc")
    one = library(tmp_path, weights="file")
    path = one.folder / "lib" / "pkgconfig" / "net.pc"
    flags = run("pkg-config", "--cflags", "--libs", path).split()
    run("gcc", one.folder / "main.c", *flags, "-o", tmp_path / "program")
    told = run("pkg-config", "--variable=weights", path).strip()
    assert same(ran(one, tmp_path / "program", "-w", told), wanted(one))


def test_a_shared_library_of_it(tmp_path: Path) -> None:
    need("gcc")
    one = library(tmp_path)
    archive = one.folder / "lib" / "libnet.a"
    whole = ("-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-Wl,-z,text")
    run("gcc", "-shared", "-o", tmp_path / "libnet.so", *whole, "-pthread")
    include = one.folder / "include"
    sources = (one.folder / "main.c", f"-I{include}", tmp_path / "libnet.so")
    run("gcc", *sources, f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "program")
    assert same(ran(one, tmp_path / "program"), wanted(one))


RISCV = "llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-u74"


@pytest.mark.parametrize(
    ("target", "processor"),
    [
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", "max"),
        (RISCV, "rv64"),
        (f"{RISCV} -mattr=+v", "rv64,v=true,vlen=256"),
    ],
)
def test_processors_of_other_kinds(target: str, processor: str, tmp_path: Path) -> None:
    """Cross compiled and emulated: close to this machine's results."""
    machine = target.partition("=")[2].partition("-")[0]
    need(f"{machine}-linux-gnu-gcc", f"qemu-{machine}")
    one = library(tmp_path, target=f"{target} -threads=2")
    program = one.program(one.folder / "main.c", compiler=f"{machine}-linux-gnu-gcc")
    emulator = [f"qemu-{machine}", "-cpu", processor, "-L", f"/usr/{machine}-linux-gnu"]
    found = ran(one, program, "-t", 2, before=emulator)
    here = library(tmp_path / "here")
    for a, b in zip(found, wanted(here), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_riscv_processor_without_vectors(tmp_path: Path) -> None:
    need("riscv64-linux-gnu-gcc", "qemu-riscv64")
    one = library(tmp_path, target=f"{RISCV} -mattr=+v")
    program = one.program(one.folder / "main.c", compiler="riscv64-linux-gnu-gcc")
    emulator = ("qemu-riscv64", "-cpu", "rv64", "-L", "/usr/riscv64-linux-gnu")
    assert "this processor lacks instructions" in run(*emulator, program, "-z", status=1)
