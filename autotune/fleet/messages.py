"""Messages between the tuner and a worker: requests and replies, plain data as JSON.

Only bytes cross the boundary, so that a worker of another version can still say that it is one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ..measure.protocol import (
    MAX_MESSAGE,
    Job,
    Outcome,
    decode_job,
    decode_reply,
    encode_job,
    encode_outcomes,
)

PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Request:
    """A job for a worker; without a job, it asks what the worker is.

    ``code`` is the tuner's version, ``spec`` and ``device`` are the target and its device id,
    ``machine`` the class of machines that measures ("": any), ``libraries`` what children need to
    call registered library functions.
    """

    code: str
    spec: str
    device: str
    machine: str = ""
    libraries: str = ""
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker: its host and process, the version of its code, and its class of machines."""

    name: str
    code: str
    machine: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request: outcomes of its job, or why the worker refuses it ("" if not).

    ``rate`` and ``stream`` are the machine's peaks as of ``floor.least_seconds``, in an answer to
    a request without a job.
    """

    worker: Identity
    refusal: str = ""
    outcomes: tuple[Outcome, ...] = ()
    rate: float = 0.0
    stream: float = 0.0


class BadReply(ValueError):
    """Bytes that are not the reply of a worker; the text says why."""


def encode_request(request: Request) -> bytes:
    """Return a request as bytes."""
    told = {n: getattr(request, n) for n in ("code", "spec", "device", "machine", "libraries")}
    job = None if request.job is None else encode_job(request.job).decode()
    return json.dumps({"protocol": PROTOCOL, **told, "job": job}).encode()


def decode_request(data: bytes) -> Request:
    """Return the request that ``encode_request`` wrote; ``ValueError`` for another protocol."""
    value: dict[str, Any] = json.loads(data)
    if value.pop("protocol", None) != PROTOCOL:
        raise ValueError(f"the tuner does not speak protocol {PROTOCOL}")
    job = value.pop("job")
    return Request(**value, job=None if job is None else decode_job(job.encode()))


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as bytes."""
    told = {"refusal": reply.refusal, "rate": reply.rate, "stream": reply.stream}
    outcomes = encode_outcomes(0, reply.outcomes).decode()
    return json.dumps({"worker": asdict(reply.worker), **told, "outcomes": outcomes}).encode()


def decode_reply_of(data: object, count: int) -> Reply:
    """Return the reply with ``count`` outcomes, none if it refuses; ``BadReply`` for others."""
    if not isinstance(data, bytes) or len(data) > MAX_MESSAGE:
        raise BadReply(f"expected bytes, at most {MAX_MESSAGE}, not {type(data).__name__}")
    try:
        value = json.loads(data)
        worker = Identity(**{k: str(v) for k, v in value["worker"].items()})
        told = decode_reply(value["outcomes"].encode())
        if not isinstance(told, tuple):
            raise ValueError("a phase")
        refusal = str(value["refusal"])
        reply = Reply(worker, refusal, told[1], float(value["rate"]), float(value["stream"]))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as e:
        raise BadReply(f"{type(e).__name__}: {e}") from None
    if len(reply.outcomes) != (0 if refusal else count):
        raise BadReply(f"{len(reply.outcomes)} outcomes of {count} candidates")
    return reply
