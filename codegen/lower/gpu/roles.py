"""Warps with roles: some copy the operands of a pipelined loop, the others compute with them.

``for k: copies into S[k % n]; use(S[k % n])`` with a note ``producers=w``, in e rows of threads
(of one ``tz`` each), becomes with w more warps

    if tz < e:  for k: wait for full[k % n]; use; arrive at empty[k % n]
    else:       for k: wait for empty[k % n]; copies; arrive at full[k % n] when they have landed

Barriers of the block become barriers of those who compute. The two only meet at mbarriers, one for
each place and way, whose phases count how often the place was filled or emptied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ....ir.errors import UnsupportedError
from ....ir.loop.build import (
    add,
    as_int,
    both,
    compare,
    floordiv,
    floormod,
    iteration,
    lt,
    mul,
    point,
)
from ....ir.loop.copies import renamed
from ....ir.loop.intrinsics import TABLE, WARP
from ....ir.loop.nodes import (
    Alloc,
    AllReduce,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Let,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import PRODUCERS
from ....ir.loop.printer import show
from ....ir.loop.visit import (
    buffers_read,
    buffers_written,
    children,
    free_vars,
    loads_in,
    map_stmt,
    seq,
    substitute,
    walk,
)
from ....ir.target import Target
from ..passes.launches import (
    BARRIER,
    PROXY_FENCE,
    WARP_BARRIER,
    closed,
    each_launch,
    opened,
)
from .bulk_copies import Arrivals, boxes_of
from .products.groups import WAITS, grouping_of, has_group_products
from .products.mbarriers import mbarriers, wait_for_phase
from .splits import copies_of, is_split

_INIT = Intrinsic("fence_mbarrier_init")
_CONSUMERS = 1  # the number of their barrier


def split_roles(func: Func, target: Target) -> Func:
    """Return the function with the warps of its launches divided where loops are noted so."""
    return each_launch(func, lambda s: _in_launch(s, func.name, target))


def _in_launch(s: For, name: str, target: Target) -> Stmt:
    divided = [x for x in walk(s) if isinstance(x, For) and is_split(x)]
    if not divided:
        return s
    roles = _Roles.of(s, divided, name, target)
    loops, body = opened(s)
    longer = replace(roles.index, extent=Const(roles.consumers + roles.extra))
    around = [longer if x is roles.index else x for x in loops]
    return closed(around, roles.start(roles.stmt(body, ())))


@dataclass(frozen=True)
class _Roles:
    """A launch: ``index`` is the loop over threads that becomes longer, of ``consumers`` iterations
    and ``extra`` ones; ``each`` threads are in one. ``phases`` are the mbarriers: of ``places``
    that are filled, then of those that are emptied. ``plain`` copies are stores; with ``boxes`` one
    thread starts bulk copies; ``blocks`` are variables that are the same for all threads of a
    block. In a loop in which those that copy and the others share nothing but what is staged, they
    are ``apart``: the first run ahead over its iterations.
    """

    name: str
    index: For
    consumers: int
    extra: int
    each: int
    thread: Expr
    places: int
    phases: Buffer
    plain: bool
    boxes: bool
    blocks: frozenset[Var]
    target: Target
    apart: bool = False

    @staticmethod
    def of(s: For, loops: list[For], name: str, target: Target) -> _Roles:
        _check(s, name, target)
        warps = max(PRODUCERS.of(x) or 1 for x in loops)
        chain = opened(s)[0]
        threads = sorted((x for x in chain if x.over_threads), key=lambda x: x.thread)
        index = next((x for x in reversed(threads) if as_int(x.extent) != 1), threads[0])
        each = prod(as_int(x.extent) or 1 for x in threads if x.thread < index.thread)
        if warps * WARP % each or each * (as_int(index.extent) or 1) % WARP:
            raise UnsupportedError(
                f"{warps} warps that copy beside blocks of {each} x {as_int(index.extent)} threads",
                f"they have to be a multiple of {each} threads, and the others whole warps",
                f"function {name}",
                "specialize with another number of warps",
            )
        thread = iteration(threads[::-1])
        places = max(map(_places, loops))
        return _Roles(
            name=name,
            index=index,
            consumers=as_int(index.extent) or 1,
            extra=warps * WARP // each,
            each=each,
            thread=thread,
            places=places,
            phases=mbarriers("phases", 2 * places, any(map(has_group_products, loops))),
            plain=any(_has_plain_copies(copies_of(x)) for x in loops),
            boxes=all(boxes_of(copies_of(x)) for x in loops),
            blocks=_of_blocks(s),
            target=target,
        )

    @property
    def consumes(self) -> Expr:
        """The condition under which a thread computes."""
        return lt(self.index.var, self.consumers)

    def start(self, body: Stmt) -> Stmt:
        """Return a launch's body behind the initialization of its mbarriers."""
        arrivals = 1 if self.boxes else self.extra * self.each * (2 if self.plain else 1)
        warps = self.consumers * self.each // WARP
        made: list[Stmt] = []
        for first, count in ((0, arrivals), (self.places, warps)):
            i = Var("place")
            at = (self.bar(add(i, first)),)
            made.append(For(i, Const(self.places), Intrinsic("mbarrier_init", at, (), (count,))))
        if TABLE[_INIT.name].on(self.target.gpu):
            made.append(_INIT)
        begin = If(compare("eq", self.thread, Const(0)), seq(*made))
        return Alloc(self.phases, seq(begin, BARRIER, body))

    def bar(self, at: Expr) -> Region:
        return point(self.phases, (at,))

    def stmt(self, s: Stmt, around: tuple[For, ...]) -> Stmt:
        """Return a statement that threads that copy skip, but for their part of the loop."""
        match s:
            case For() if is_split(s):
                return self.loop(s, around)
            case _ if _is_arrival(s):
                return s
            case _ if not _of_all(s):
                return If(self.consumes, _among(s, self.consumers * self.each))
            case Seq(stmts=stmts):
                return seq(*self.sequence(stmts, around))
            case For(body=body):
                inner = replace(self, apart=_shares_nothing(body))
                return replace(s, body=inner.stmt(body, (*around, s)))
            case Alloc(body=body) | Let(body=body):
                return replace(s, body=self.stmt(body, around))
            case If(cond=cond, then=then, orelse=orelse) if _is_of(cond, self.blocks):
                other = None if orelse is None else self.stmt(orelse, around)
                return replace(s, then=self.stmt(then, around), orelse=other)
            case _:
                raise UnsupportedError(
                    "a loop for warps with roles stands under a condition",
                    "those that copy cannot know how often it runs",
                    f"function {self.name}:\n{show(s)}",
                )

    def sequence(self, stmts: tuple[Stmt, ...], around: tuple[For, ...]) -> list[Stmt]:
        """Return the statements in order: those between barriers of all threads are one branch."""
        done: list[Stmt] = []
        mine: list[Stmt] = []
        for n, x in enumerate(stmts):
            before = n + 1 < len(stmts) and _splits(stmts[n + 1])
            carried = n + 1 == len(stmts) and bool(around)
            whole = x == BARRIER and (before or carried) and not self.apart
            whole |= x == BARRIER and n + 1 < len(stmts) and _is_arrival(stmts[n + 1])
            if not _of_all(x) and not whole:
                mine.append(x)
                continue
            if mine:
                done.append(self.stmt(seq(*mine), around))
                mine = []
            done.append(x if whole else self.stmt(x, around))
        return [*done, self.stmt(seq(*mine), around)] if mine else done

    def loop(self, s: For, around: tuple[For, ...]) -> Stmt:
        """Return the loop of those who compute, and that of those who copy."""
        number = iteration((*around, s))
        assert isinstance(s.body, Seq)
        turn = _Turn(self, number, s.var, _places(s), _behind(s))
        work = seq(
            turn.wait(0, 0),
            *([PROXY_FENCE] if has_group_products(s) and not self.boxes else []),
            *(_among(x, self.consumers * self.each) for x in s.body.stmts[1:]),
            turn.emptied(),
        )
        fill = seq(turn.wait(self.places, 1), *self.filled(copies_of(s), turn))
        plain = PRODUCERS.drop(s)
        first, second = (renamed(replace(plain, body=x)) for x in (work, fill))
        if turn.behind:
            after = replace(turn, number=add(number, turn.behind), step=add(s.var, turn.behind))
            last = {s.var: Const((as_int(s.extent) or 1) - 1)}
            how = grouping_of(s)
            landed = () if how is None else (how.wait(0),)
            first = seq(first, *landed, substitute(after.emptied(), last))
        return If(self.consumes, first, second)

    def filled(self, copies: Stmt, turn: _Turn) -> list[Stmt]:
        """Return the copies of a turn, by those who copy or by one of them, and their arrivals."""
        if not self.boxes:
            return [self.shared_out(copies), *turn.filled()]
        first = compare("eq", self.thread, Const(self.consumers * self.each))
        place = floormod(turn.number, self.places)
        return [Arrivals(self.phases, first).start(boxes_of(copies), place)]

    def shared_out(self, copies: Stmt) -> Stmt:
        """Return the copies of all consumers, made in turns by those who copy."""
        turn = Var("turn")
        mine = add(mul(turn, self.extra), add(self.index.var, -self.consumers))
        body = substitute(copies, {self.index.var: mine})
        if self.consumers % self.extra:
            body = If(lt(mine, self.consumers), body)
        return For(turn, Const(-(-self.consumers // self.extra)), body)


@dataclass(frozen=True)
class _Turn:
    """An iteration of a loop, of which ``number`` were before; it takes one of ``places`` in turn.

    It is number ``step`` of this run of the loop. What it reads is only known to be read
    ``behind`` iterations later.
    """

    roles: _Roles
    number: Expr
    step: Expr
    places: int
    behind: int

    def wait(self, first: int, flipped: int) -> Stmt:
        """Return the wait for the iteration's place: filled, or emptied of what was there."""
        bar = self.roles.bar(add(floormod(self.number, self.places), first))
        return wait_for_phase(bar, add(floordiv(self.number, self.places), flipped))

    def emptied(self) -> Stmt:
        """Return the arrival of each warp where it has read a place."""
        at = add(self.number, -self.behind)
        place = self.roles.bar(add(floormod(at, self.places), self.roles.places))
        first = compare("eq", floormod(self.roles.thread, WARP), Const(0))
        if self.behind:
            first = both(compare("ge", self.step, Const(self.behind)), first) or first
        return seq(WARP_BARRIER, If(first, Intrinsic("mbarrier_arrive", (place,))))

    def filled(self) -> list[Stmt]:
        """Return the arrivals of each thread that copies."""
        place = (self.roles.bar(floormod(self.number, self.places)),)
        own = [Intrinsic("mbarrier_arrive", place)] if self.roles.plain else []
        return [Intrinsic("mbarrier_arrive_copies", place), *own]


def _check(s: For, name: str, target: Target) -> None:
    """``UnsupportedError`` for launches that cannot be divided."""
    least = TABLE["mbarrier_wait"].sm
    if target.gpu.sm < least:
        why = f"{target.cpu} has no mbarriers: it needs sm_{least}"
    elif _most(s) > 1:
        why = "it has several such loops one after the other"
    elif any(isinstance(x, AllReduce) for x in walk(s)):
        why = "threads combine results in it, which all of a block do together"
    else:
        return
    raise UnsupportedError("a launch cannot have warps with roles", why, f"function {name}")


def _splits(s: Stmt) -> bool:
    return any(map(is_split, walk(s)))


def _of_all(s: Stmt) -> bool:
    """True if warps that copy have a part in a statement: a loop of theirs, or a join of blocks."""
    return _splits(s) or any(map(_is_arrival, walk(s)))


def _is_arrival(s: Stmt) -> bool:
    """True for the arrival of a whole block where others go on from what it made."""
    return isinstance(s, Intrinsic) and s.name == "arrive"


def _of_blocks(s: Stmt) -> frozenset[Var]:
    """Return the variables, not of serial loops, that are equal for all threads of a block."""
    found: set[Var] = set()
    for x in walk(s):
        if isinstance(x, For) and x.over_blocks:
            found.add(x.var)
        if isinstance(x, Let) and _is_of(x.value, frozenset(found)):
            found.add(x.var)
    return frozenset(found)


def _is_of(e: Expr, known: frozenset[Var]) -> bool:
    return free_vars(e) <= known and not any(loads_in(e))


def _most(s: Stmt) -> int:
    """Return the number of loops for warps with roles that one thread may run."""
    found = [_most(x) for x in children(s)]
    return int(is_split(s)) + (max(found) if isinstance(s, If) else sum(found))


def _places(s: For) -> int:
    """Return the number of places that a loop's buffers have."""
    found = (x for x in walk(copies_of(s)) if isinstance(x, Intrinsic | Store))
    buffers = [x.buffer if isinstance(x, Store) else x.writes[0].buffer for x in found]
    return next(as_int(b.shape[0]) or 1 for b in buffers if b.scope is Scope.SHARED)


def _shares_nothing(s: Stmt) -> bool:
    """True if no memory that threads share is used by those that copy and the others, but for what
    the first stage."""
    copies = seq(*(copies_of(x) for x in walk(s) if is_split(x)))
    made = {x.buffer for x in walk(s) if isinstance(x, Alloc) and x.buffer.scope is Scope.SHARED}
    common = {b for b in buffers_read(copies) & buffers_written(s) if b.scope is Scope.GLOBAL}
    return made <= buffers_written(copies) and not common


def _behind(s: For) -> int:
    """Return the groups of products that may be under way when an iteration ends."""
    calls = (x for x in walk(s) if isinstance(x, Intrinsic))
    return next((x.args[0] for x in calls if x.name in WAITS), 0)


def _has_plain_copies(s: Stmt) -> bool:
    return any(isinstance(x, Store) and x.buffer.scope is Scope.SHARED for x in walk(s))


def _among(s: Stmt, threads: int) -> Stmt:
    """Return a statement in which the consumers wait for each other only."""
    if s == BARRIER:
        return Intrinsic("named_barrier", args=(_CONSUMERS, threads))
    return map_stmt(s, lambda c: _among(c, threads))
