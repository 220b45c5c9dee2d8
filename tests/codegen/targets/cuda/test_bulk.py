"""Bulk copies, barriers with phases and registers of roles: what PTX they become."""

from __future__ import annotations

import pytest

from nestwright.codegen.emit.launches import launches
from nestwright.codegen.plan.code.device import TensorMap
from nestwright.codegen.targets.cuda import nvptx, ptxas, sass
from nestwright.codegen.targets.registry import emit
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

HOPPER = Target.parse("cuda -arch=sm_90a")
BOX = "args(256, 64, 256, 64, 64, 128)"
COPY = f"""\
@func(outputs=1)
def copy(A: bf16[16384], B: bf16[16384]):
    for bx in thread("blockIdx.x", 4):
        for tz in thread("threadIdx.z", 2):
            for tx in thread("threadIdx.x", 128):
                S = alloc(bf16[4096], scope="shared")
                bar = alloc(u64[2], scope="shared")
                place = alloc(s32[2], scope="register")
                parity = alloc(s32[1], scope="register")
                place[0] = cast(s32, bx * 64)
                place[1] = s32(0)
                parity[0] = s32(0)
                if tz * 128 + tx == 0:
                    intrinsic("mbarrier_init", writes(bar[0 : 1]), args(1))
                    intrinsic("mbarrier_init", writes(bar[1 : 2]), args(256))
                    intrinsic("fence_mbarrier_init")
                intrinsic("barrier")
                if tz == 1:
                    intrinsic("give_registers", args(40))
                else:
                    intrinsic("take_registers", args(232))
                    if tx == 0:
                        intrinsic("mbarrier_expect", writes(bar[0 : 1]), args(8192))
                        intrinsic("tma_load", writes(S[0 : 4096]), reads(A[0 : 16384], \
place[0 : 2], bar[0 : 1]), {BOX})
                    intrinsic("named_barrier", args(1, 128))
                intrinsic("mbarrier_arrive", writes(bar[1 : 2]))
                intrinsic("mbarrier_wait", reads(bar[0 : 1], parity[0 : 1]))
                intrinsic("mbarrier_wait", reads(bar[1 : 2], parity[0 : 1]))
                if tz * 128 + tx == 0:
                    intrinsic("fence_proxy_async")
                    intrinsic("tma_store", writes(B[0 : 16384]), reads(S[0 : 4096], \
place[0 : 2]), {BOX})
                    intrinsic("tma_commit")
                    intrinsic("tma_wait_read", args(0))
                    intrinsic("tma_wait", args(0))
"""


def test_launch_says_which_maps_it_takes() -> None:
    (launch,) = launches(parse(COPY))
    row = (256, 64, 256, 64, 64, 128)
    assert launch.maps == (TensorMap(0, 0, 2, *row), TensorMap(1, 0, 2, *row))


def test_maps_stay_where_the_launch_has_put_them() -> None:
    """A copy in a thread's own memory is none that a bulk copy may use. LLVM before 21 is told so
    by an annotation, later ones by an attribute."""
    made = emit(parse(COPY), HOPPER)
    assert made.count('"nvvm.grid_constant"') == 2 and '!"grid_constant", !{i32 3, i32 4}' in made
    text = nvptx.compile(made, HOPPER)
    assert text.count("cvta.param.u64") == 2 and ".local" not in text


def test_code_of_copies_and_barriers() -> None:
    text = nvptx.compile(emit(parse(COPY), HOPPER), HOPPER)
    for word in (
        ".align 64 .b8 copy_param_2[128]",
        "mbarrier.init.shared.b64",
        "mbarrier.arrive.expect_tx.shared.b64",
        "mbarrier.try_wait.parity.shared.b64",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",
        "setmaxnreg.dec.sync.aligned.u32 40",
        "bar.sync 1, 128",
    ):
        assert word in text, word
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    made = ptxas.assemble(text, HOPPER.cpu)
    assert not made.warnings
    begin = made.kernels["copy"].registers  # of each thread: a group that takes more than are
    assert 2 * begin >= 40 + 232  # given away waits forever
    assert all(u.spill_loads == u.stack == 0 for u in made.kernels.values())
    if sass.find():
        code = sass.disassemble(text, HOPPER.cpu)
        assert code.count("UTMALDG.2D") == code.count("UTMASTG.2D") == 1
        assert "STL" not in code and "USETMAXREG" in code
