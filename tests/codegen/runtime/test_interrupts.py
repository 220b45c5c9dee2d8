"""Signals end native calls on every thread, in loops, kernels and the pool; the next call is right.

Calls that would never return run in child processes, so that one that is not left ends by a limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.ir.target import Target

HOST = Target.parse("cpu")
LIMIT = 120  # seconds after which a child counts as hung
ROOT = Path(__file__).parents[3]

PRELUDE = '''
import os, signal, sys, threading, time
import numpy as np
import nestwright as nw

COUNT = """HloModule count
c { t = (s64[], s64[], f32[8]) parameter(0)
 i = s64[] get-tuple-element(t), index=0
 n = s64[] get-tuple-element(t), index=1
 ROOT p = pred[] compare(i, n), direction=LT }
b { t = (s64[], s64[], f32[8]) parameter(0)
 i = s64[] get-tuple-element(t), index=0
 n = s64[] get-tuple-element(t), index=1
 x = f32[8] get-tuple-element(t), index=2
 o = s64[] constant(1)
 j = s64[] add(i, o)
 h = f32[] constant(0.5)
 hs = f32[8] broadcast(h), dimensions={}
 y = f32[8] multiply(x, hs)
 z = f32[8] add(y, hs)
 ROOT r = (s64[], s64[], f32[8]) tuple(j, n, z) }
ENTRY e { n = s64[] parameter(0)
 x = f32[8] parameter(1)
 z = s64[] constant(0)
 t = (s64[], s64[], f32[8]) tuple(z, n, x)
 w = (s64[], s64[], f32[8]) while(t), condition=c, body=b
 ROOT y = f32[8] get-tuple-element(w), index=2 }"""

# One kernel: the sum of a function of all pairs of numbers. 2**40 of them take minutes.
PAIRS = """HloModule pairs
a { p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT s = f32[] add(p, q) }
ENTRY e { x = f32[SIZE] parameter(0)
 z = f32[] constant(0)
 b = f32[SIZE,SIZE] broadcast(x), dimensions={0}
 c = f32[SIZE,SIZE] broadcast(x), dimensions={1}
 d = f32[SIZE,SIZE] multiply(b, c)
 t = f32[SIZE,SIZE] tanh(d)
 ROOT s = f32[] reduce(t, z), dimensions={0,1}, to_apply=a }"""

# A loop in a loop, the inner one in a branch, with a kernel that the pool shares.
NESTED = """HloModule nested
a { p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT s = f32[] add(p, q) }
c { t = (s64[], s64[], f32[512,512]) parameter(0)
 i = s64[] get-tuple-element(t), index=0
 n = s64[] get-tuple-element(t), index=1
 ROOT p = pred[] compare(i, n), direction=LT }
b { t = (s64[], s64[], f32[512,512]) parameter(0)
 i = s64[] get-tuple-element(t), index=0
 n = s64[] get-tuple-element(t), index=1
 x = f32[512,512] get-tuple-element(t), index=2
 o = s64[] constant(1)
 j = s64[] add(i, o)
 y = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = (s64[], s64[], f32[512,512]) tuple(j, n, y) }
yes { t = (s64[], s64[], f32[512,512]) parameter(0)
 ROOT w = (s64[], s64[], f32[512,512]) while(t), condition=c, body=b }
no { ROOT t = (s64[], s64[], f32[512,512]) parameter(0) }
ob { t = (s64[], s64[], f32[512,512]) parameter(0)
 i = s64[] get-tuple-element(t), index=0
 k = s64[] constant(-1)
 p = pred[] compare(i, k), direction=GT
 ROOT r = (s64[], s64[], f32[512,512]) conditional(p, t, t),
   true_computation=yes, false_computation=no }
ENTRY e { n = s64[] parameter(0)
 x = f32[512,512] parameter(1)
 z = s64[] constant(0)
 t = (s64[], s64[], f32[512,512]) tuple(z, n, x)
 w = (s64[], s64[], f32[512,512]) while(t), condition=c, body=ob
 ROOT y = f32[512,512] get-tuple-element(w), index=2 }"""

def build(text, target="cpu", **sizes):
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return nw.build(nw.parse(text), target, cache=False)

EVER = np.int64(2**62)
MAIN = threading.main_thread().ident

def send(number=signal.SIGINT, times=1):
    """Send this process a signal once the line that calls is under way."""
    def sender():
        for _ in range(times):
            time.sleep(0.1)
            os.kill(os.getpid(), number)
    threading.Thread(target=sender, daemon=True).start()

def interrupted(call, raises=KeyboardInterrupt, number=signal.SIGINT, times=1):
    send(number, times)
    try:
        call()
    except raises:
        return
    raise SystemExit(f"{call} returned")

def counts(exe, n=3):
    x = np.arange(8, dtype=np.float32)
    want = x
    for _ in range(n):
        want = want * np.float32(0.5) + np.float32(0.5)
    assert np.array_equal(exe(np.int64(n), x), want)
'''


def child(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a script; it may end in any way, but it ends."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script, *args],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=ROOT,
        env={**os.environ, "NESTWRIGHT_CACHE": "off", "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def passes(script: str, *args: str) -> None:
    done = child(script, *args)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["cpu", "cpu -threads=1", "cuda-sim -arch=sm_90"])
def test_what_never_ends_is_left_and_the_next_call_is_right(target: str) -> None:
    passes(
        """
target = sys.argv[1]
small = target.startswith("cuda")
exe = build(COUNT, target)
x = np.arange(8, dtype=np.float32)
for _ in range(2):
    before = sys.getrefcount(x)
    interrupted(lambda: exe(EVER, x))
    assert sys.getrefcount(x) == before
    counts(exe)
out = np.empty(8, np.float32)
interrupted(lambda: exe(EVER, x, out=out))
counts(exe)
interrupted(lambda: exe.profile(EVER, x))
counts(exe)

pairs = build(PAIRS, target, SIZE=2**20)
interrupted(lambda: pairs(np.ones(2**20, np.float32)))
few = build(PAIRS, target, SIZE=9)
assert np.allclose(few(np.ones(9, np.float32)), 81 * np.tanh(1), rtol=1e-5)
interrupted(lambda: pairs(np.ones(2**20, np.float32)))
counts(exe)

if not small:
    nested = build(NESTED, target)
    eye = np.eye(512, dtype=np.float32)[::-1].copy()
    for _ in range(2):
        interrupted(lambda: nested(EVER, eye))
        assert np.array_equal(nested(np.int64(3), eye), np.eye(512))
        assert np.array_equal(nested(np.int64(0), eye), eye)
pid = os.fork()
if not pid:
    counts(exe)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
        target,
    )


def test_handlers_decide_what_a_signal_means() -> None:
    """Those installed after the runtime was loaded, too; the first calls load it."""
    passes(
        """
exe = build(COUNT)
x = np.arange(8, dtype=np.float32)
counts(exe)
seen = []

def handler(number, frame):
    seen.append(number)
    counts(exe)  # a call in the middle of a call
    if len(seen) == 3:
        raise LookupError

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    seen.clear()
    before = signal.signal(number, handler)
    interrupted(lambda: exe(EVER, x), LookupError, number, times=3)
    assert seen == [number] * 3
    counts(exe)
    signal.signal(number, before)
interrupted(lambda: exe(EVER, x))

def alarm(number, frame):
    raise TimeoutError

signal.signal(signal.SIGALRM, alarm)
signal.signal(signal.SIGINT, signal.SIG_IGN)
send(signal.SIGINT)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    exe(EVER, x)
except TimeoutError:
    counts(exe)
else:
    raise SystemExit("returned")
"""
    )


def test_a_handler_cannot_run_the_launch_that_it_interrupts() -> None:
    passes(
        """
from nestwright.ir.errors import UnsupportedError
pairs = build(PAIRS, "cuda-sim -arch=sm_90", SIZE=2**20)
x = np.ones(2**20, np.float32)
signal.signal(signal.SIGUSR1, lambda number, frame: pairs(x))
interrupted(lambda: pairs(x), UnsupportedError, signal.SIGUSR1)
signal.signal(signal.SIGUSR1, lambda number, frame: 1 / 0)
interrupted(lambda: pairs(x), ZeroDivisionError, signal.SIGUSR1)
"""
    )


def test_a_late_signal_does_not_end_the_next_call() -> None:
    passes(
        """
exe = build(COUNT)
x = np.arange(8, dtype=np.float32)
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
for n in range(300):
    os.kill(os.getpid(), signal.SIGUSR1)
    counts(exe, n % 7)
assert len(seen) == 300
for n in range(20):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        counts(exe)
    except KeyboardInterrupt:
        pass
    else:
        raise SystemExit("no KeyboardInterrupt")
    counts(exe)
"""
    )


def test_calls_on_other_threads_end_too() -> None:
    passes(
        """
from concurrent.futures import ThreadPoolExecutor
exe, pairs = build(COUNT), build(PAIRS, SIZE=2**20)
x = np.arange(8, dtype=np.float32)
ended = []

def work(call, *args):
    try:
        call(*args)
    except KeyboardInterrupt:
        ended.append(call)

jobs = [(exe, EVER, x), (exe, EVER, x), (pairs, np.ones(2**20, np.float32))]
threads = [threading.Thread(target=work, args=j, daemon=n > 0) for n, j in enumerate(jobs)]
for t in threads:
    t.start()
left = threading.Event()

def ask():  # again and again: a call that has not begun when a signal comes is not ended by it
    while len(ended) < 3:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    left.set()

threading.Thread(target=ask, daemon=True).start()
raised = 0
while not left.is_set():
    try:
        while not left.is_set():
            time.sleep(0.05)
    except KeyboardInterrupt:
        raised += 1
assert raised and len(ended) == 3
counts(exe)
# A handler that is the user's own decides for the main thread only.
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
with ThreadPoolExecutor(2) as pool:
    future = pool.submit(exe, EVER, x)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    assert seen and not future.done()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while not future.done():
        try:
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
    assert isinstance(future.exception(), KeyboardInterrupt)
counts(exe)
"""
    )


def test_a_process_whose_threads_run_for_ever_ends() -> None:
    done = child(
        """
import asyncio
exe = build(COUNT)
x = np.arange(8, dtype=np.float32)

async def main():
    send()
    await asyncio.get_running_loop().run_in_executor(None, exe, EVER, x)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    counts(exe)
    print("left asyncio", flush=True)
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    futures = [pool.submit(exe, EVER, x) for _ in range(2)]
    send()
    futures[0].result()
"""
    )
    assert "left asyncio" in done.stdout, done.stderr
    assert done.returncode in (1, 130, -signal.SIGINT) and "KeyboardInterrupt" in done.stderr


LOOPS = {
    "serial": """@func(outputs=1)
def f(A: f32[1], C: f32[1]):
    for i in range(1099511627776):
        C[0] = C[0] * A[0] + A[0]
""",
    "vectors": """@func(outputs=1)
def f(A: f32[1024], C: f32[1024]):
    for i in range(1099511627776):
        for j in vectorize(1024):
            C[j] = C[j] * A[j] + A[j]
""",
    "parallel": """@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    for i in parallel(64):
        for j in range(1099511627776):
            C[i] = C[i] * A[i] + A[i]
""",
    "wide": """@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    for i in parallel(1099511627776):
        C[i % 64] = A[i % 64]
""",
}


def test_kernels_by_themselves_are_left() -> None:
    passes(
        """
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target
for text in sys.argv[1:]:
    for target in ("cpu", "cpu -threads=1"):
        kernel = compile_func(parse(text), Target.parse(target))
        size = kernel.compiled.params[0].dims
        interrupted(lambda: kernel(np.ones(size, np.float32)))
counts(build(COUNT))
""",
        *LOOPS.values(),
    )


def test_the_command_says_interrupted(tmp_path: Path) -> None:
    model = tmp_path / "ever.hlo"
    model.write_text("""HloModule ever
c { t = (f32[4]) parameter(0)
 ROOT p = pred[] constant(true) }
b { t = (f32[4]) parameter(0)
 x = f32[4] get-tuple-element(t), index=0
 y = f32[4] tanh(x)
 ROOT r = (f32[4]) tuple(y) }
ENTRY e { x = f32[4] parameter(0)
 t = (f32[4]) tuple(x)
 w = (f32[4]) while(t), condition=c, body=b
 ROOT y = f32[4] get-tuple-element(w), index=0 }""")
    done = child(
        """
from nestwright.cli.main import main
from nestwright.codegen.runtime.executable import Executable
run = Executable.__call__
def begun(*args, **more):
    send()
    return run(*args, **more)
Executable.__call__ = begun
sys.exit(main(["run", sys.argv[1], "--random", "0"]))
""",
        str(model),
    )
    assert done.returncode == 130 and "interrupted" in done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="helpers need a second core")
def test_building_with_helpers_is_left_with_nothing_behind() -> None:
    """A terminal sends Ctrl-C to the whole group of processes; the helpers are not in it."""
    done = child(
        r"""
from nestwright.codegen.driver import parallel
children = []
start = parallel.Helper.__init__
def started(self, *args, **more):
    start(self, *args, **more)
    children.append(self.process)
parallel.Helper.__init__ = started
def compile_text(*args):
    assert children and children[0].poll() is None
    os.killpg(0, signal.SIGINT)
    time.sleep(100)
parallel.compile_text = compile_text
lines = [f" v{n} = f32[{n}] tanh(p{n})" for n in range(1, 20)]
lines += [f" p{n} = f32[{n}] parameter({n - 1})" for n in range(1, 20)]
names = ", ".join(f"v{n}" for n in range(1, 20))
shapes = ", ".join(f"f32[{n}]" for n in range(1, 20))
text = "\n".join(["HloModule many", "ENTRY e {", *reversed(lines)])
os.setpgid(0, 0)
try:
    build(f"{text}\n ROOT r = ({shapes}) tuple({names}) }}")
except KeyboardInterrupt:
    assert children[0].poll() is not None
    print("left", len(children))
"""
    )
    assert done.stdout.startswith("left") and not done.stderr, done.stdout + done.stderr
