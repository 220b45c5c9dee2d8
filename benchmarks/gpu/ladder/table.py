"""The table of rungs, in the order in which each relies on those before.

A rung is a row here and a function, which gets a ``site.Site``, raises ``rung.Wrong`` where the
mechanism does not work (``expect`` and its kin do), and gives the fact that its line ends with.
"""

from __future__ import annotations

from . import exchange, faults, hopper, kernels, machine, matrices, probes, programs, runs
from .rung import Needs, Rung

SQUARES, DRY_SQUARES = (64, 192, 1000), (100, 192)
COPIED = (1, 3, 255, 4097, (1 << 22) - 1, (1 << 22) + 1, (1 << 23) + 3)  # about the staging's 4 MiB
LARGE_COPY = (1 << 28) + 5
ONE = 20_003  # elements of the first kernel
THREADS = (1 << 25) + 4  # elements, of which a thread has some
MANY = (1 << 29) + 5  # numbers of four bytes


def _mma(kind: str) -> Rung:
    return Rung(
        f"mma-{kind}",
        matrices.mma(kind),
        f"cp.async, ldmatrix, mma of {kind}, tails included",
        lambda n: programs.product(kind, n, n, n),
        SQUARES,
        DRY_SQUARES,
    )


RUNGS = (
    Rung(
        "driver", machine.driver, "the driver answers; versions of everything", needs=Needs.DRIVER
    ),
    Rung(
        "copies",
        machine.copies,
        "bytes up, across and down, odd sizes and places",
        sizes=(*COPIED, LARGE_COPY),
        dry=COPIED,
        needs=Needs.DRIVER,
    ),
    Rung(
        "cubin",
        kernels.cubin,
        "one element-wise kernel from machine code",
        programs.elementwise,
        (ONE,),
        (ONE,),
    ),
    Rung(
        "jit",
        kernels.jit,
        "the same kernel from PTX, by the driver's compiler",
        programs.elementwise,
        (ONE,),
        (ONE,),
        env={"CUDA_CACHE_DISABLE": "1"},
    ),  # or the driver takes what it compiled before
    Rung(
        "threads",
        kernels.threads,
        "2^20 threads in one launch",
        programs.elementwise,
        (THREADS,),
        (1 << 16,),
    ),
    Rung(
        "reduction",
        kernels.reduction,
        "sums over threads by shuffles",
        programs.row_sums,
        (1000, 100_003),
        (100, 4097),
    ),
    Rung(
        "shared",
        kernels.shared,
        "more shared memory than 48 KiB: softmax of long rows",
        programs.softmax,
        (24_576, 50_000),
        (24_576,),
    ),
    *map(_mma, ("f16", "bf16", "tf32", "s8")),
    Rung(
        "large-tile",
        matrices.large_tile,
        "the tile of 256 x 128 x 64 in 192 KiB",
        lambda n: programs.product("bf16", n, n, n, programs.LARGE_TILE),
        (4096,),
        (300,),
    ),
    Rung(
        "split-k",
        matrices.split_k,
        "a depth shared among blocks, then added up",
        lambda n: programs.product("f16", 64, 64, n),
        (2048, 16_384),
        (2048,),
    ),
    *(
        Rung(name, hopper.probe(one), about)
        for name, one, about in (
            ("mbarrier", probes.MBARRIER, "barriers with phases between warps"),
            ("tma-load", probes.TMA_LOAD, "a bulk copy of a box, its bytes counted by an mbarrier"),
            ("tma-store", probes.TMA_STORE, "a bulk copy of a box to a matrix that it overhangs"),
            ("stmatrix", probes.STMATRIX, "matrices of a warp to shared memory"),
            ("wgmma", probes.WGMMA, "a product of a warp group from swizzled tiles"),
            ("setmaxnreg", probes.SETMAXNREG, "registers that one group gives to another"),
        )
    ),
    Rung(
        "wgmma-all",
        hopper.group_product,
        "a product by warps with roles, bulk copies and stmatrix",
        seconds=60,
    ),
    Rung(
        "graph",
        runs.graph,
        "a run recorded as a graph, and replays at two places",
        programs.chain,
        (192,),
        (96,),
        needs=Needs.DRIVER,
    ),
    Rung(
        "while",
        runs.while_loop,
        "a loop whose turns the data decide",
        programs.doubling,
        (100_000,),
        (1000,),
    ),
    Rung(
        "out",
        runs.out,
        "results in given arrays, on the argument too",
        programs.turned,
        (1000,),
        (100,),
        needs=Needs.DRIVER,
    ),
    Rung(
        "strided",
        exchange.strided,
        "views of another library's arrays",
        programs.tripled,
        (300,),
        (60,),
        needs=Needs.DRIVER,
    ),
    Rung(
        "dlpack",
        exchange.dlpack,
        "arrays both ways on another stream, dropped early",
        programs.tripled,
        (300,),
        (60,),
        needs=Needs.DRIVER,
        seconds=40,
    ),
    Rung(
        "gigabytes",
        runs.gigabytes,
        "a result of more than 2 GiB",
        programs.numbers,
        (MANY,),
        (1 << 16,),
        needs=Needs.DRIVER,
        seconds=40,
    ),
    Rung(
        "fault",
        faults.fault,
        "an illegal address: the error names the kernel",
        programs.chain,
        (192,),
        (96,),
        needs=Needs.DRIVER,
        env={"NESTWRIGHT_CUDA_SYNC": "1"},
        ends=True,
    ),
    Rung(
        "after-fault",
        faults.after_fault,
        "the next process finds the machine fine",
        programs.elementwise,
        (ONE,),
        (ONE,),
    ),
)
BY_NAME = {rung.name: rung for rung in RUNGS}
