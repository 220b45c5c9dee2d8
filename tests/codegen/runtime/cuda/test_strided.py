"""The strided copy for GPUs is PTX by hand: each of its instructions is carried out in Python."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.plan.code.device import LaunchConfig
from nestwright.codegen.runtime.cuda import strided
from nestwright.codegen.targets.cuda import ptxas

MASK = (1 << 64) - 1


class Thread:
    """One thread of a kernel of ``strided.module()``."""

    def __init__(self, params: list[int], block: int, threads: int, thread: int) -> None:
        self.values: dict[str, int] = {f"p{i}": p & MASK for i, p in enumerate(params)}
        self.values |= {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread}

    def run(self, body: list[str]) -> None:
        at = 0
        while at < len(body):
            step = body[at]
            at += 1
            if guard := re.match(r"@(%\w+) bra (\w+)$", step):
                at = body.index(f"{guard[2]}:") if self.values[guard[1]] else at
            elif step == "ret":
                return
            elif not step.endswith(":"):
                name, _, rest = step.partition(" ")
                self.do(name, [x.strip() for x in rest.split(",")])

    def read(self, text: str) -> int:
        return self.values[text] if text in self.values else int(text)

    def do(self, name: str, operands: list[str]) -> None:
        if name.startswith("st."):
            size = int(name.split(".b")[1]) // 8
            value = self.read(operands[1]).to_bytes(size, "little")
            ctypes.memmove(self.read(operands[0].strip("[]")), value, size)
            return
        target, *sources = operands
        if name.startswith("ld.b"):
            size = int(name.split(".b")[1]) // 8
            data = ctypes.string_at(self.read(sources[0].strip("[]")), size)
            self.values[target] = int.from_bytes(data, "little")
            return
        a, *rest = (self.read(s.strip("[]")) for s in sources)
        self.values[target] = (
            MASK
            & {
                "mov.u32": lambda: a,
                "mov.u64": lambda: a,
                "cvt.u64.u32": lambda: a,
                "ld.param.u64": lambda: a,
                "mul.wide.u32": lambda: a * rest[0],
                "add.u64": lambda: a + rest[0],
                "sub.u64": lambda: a - rest[0],
                "setp.ge.u64": lambda: int(a >= rest[0]),
                "div.u64": lambda: a // rest[0],
                "mul.lo.u64": lambda: a * rest[0],
                "mad.lo.s64": lambda: a * rest[0] + rest[1],
            }[name]()
        )


def body(width: int) -> list[str]:
    """The instructions and labels of a kernel."""
    text = strided.module().split(f".entry nw_gather_{width}(")[1].split("\n{\n")[1]
    lines = re.sub(r"(\w+:)", r"\1;", text.split("\n}")[0])
    found = [x.strip() for x in lines.replace("\n", " ").split(";")]
    return [x for x in found if x and not x.startswith(".reg")]


class Driver:
    """Carries out what is launched, thread by thread."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def call(self, function: str, name: str, *rest: Any) -> None:
        assert function == "cuLaunchKernel"
        grid, threads, pointers = rest[0], rest[3], rest[-2]
        count = 3 + 2 * strided.RANK
        places = (ctypes.c_void_p * count).from_address(pointers)
        params = [ctypes.c_uint64.from_address(p).value for p in places]
        self.launched.append(name)
        steps = body(int(name.rsplit("_", 1)[1]))
        for block in range(grid):
            for thread in range(threads):
                Thread(params, block, threads, thread).run(steps)


class Kernel:
    def __init__(self, width: int) -> None:
        self.function = f"nw_gather_{width}"
        self.launch = LaunchConfig(self.function, (1, 1, 1), (1, 1, 1), 0)


class Device:
    stream = None

    def __init__(self) -> None:
        self.driver = Driver()
        self.in_progress: dict[str, None] = {}


VIEWS = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[::2, 1::3],
    "backwards": lambda x: x[::-1, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], (8, 5)),
    "higher": lambda x: x.reshape(2, 2, 2, 3, 2).transpose(4, 2, 0, 3, 1),
    "one element": lambda x: x[3:4, 2:3],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
def test_views_come_out_row_major(monkeypatch: pytest.MonkeyPatch, view: str, dtype: str) -> None:
    monkeypatch.setattr(strided, "_kernels", lambda device: {w: Kernel(w) for w in (1, 2, 4, 8)})
    source = VIEWS[view](np.arange(48).reshape(8, 6).astype(dtype))
    target = np.zeros(source.shape, dtype)
    width = target.itemsize
    strides = tuple(s // width for s in source.strides)
    device: Any = Device()
    strided.gather(device, target.ctypes.data, source.ctypes.data, width, source.shape, strides)
    np.testing.assert_array_equal(target, source)
    assert device.driver.launched == [f"nw_gather_{min(width, 8)}"]


def test_elements_that_stand_askew_are_copied_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strided, "_kernels", lambda device: {w: Kernel(w) for w in (1, 2, 4, 8)})
    room = np.zeros(100, np.uint8)
    start = -room.ctypes.data % 4 + 1
    source = room[start : start + 48].view(np.float32)
    source[:] = np.arange(12)
    target = np.zeros((4, 3), np.float32)
    device: Any = Device()
    strided.gather(device, target.ctypes.data, source.ctypes.data, 4, (4, 3), (1, 4))
    np.testing.assert_array_equal(target, source.reshape(3, 4).T)
    assert device.driver.launched == ["nw_gather_1"]


def test_dimensions_merge() -> None:
    assert strided.merged((4, 1, 5, 6), (30, 99, 6, 1)) == ((120,), (1,))
    assert strided.merged((4, 5, 6), (5, 1, 20)) == ((20, 6), (1, 20))
    assert strided.merged((3, 2), (-2, -1)) == ((6,), (-1,))


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_the_strided_copy_assembles(arch: str) -> None:
    usage = ptxas.assemble(strided.module(), arch).kernels
    assert set(usage) == {f"nw_gather_{w}" for w in (1, 2, 4, 8)}
    assert all(u.registers <= 32 and not u.spill_stores for u in usage.values())
