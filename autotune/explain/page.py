"""The page of a model's graph: one offline HTML file, by jinja2.

The stage texts are compressed, since assembly repeats itself; the browser unpacks them when a
group is opened. The only script is the page's own: its policy forbids any other, and any request.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from ...ir.files import encodable
from .cards import model_picture, operations_text, percent, sized
from .graph import ComputationGraph, Flow, ModelGraph, Vertex
from .picture import STYLE

Texts = Mapping[str, Mapping[str, str]]
Notes = Mapping[str, Sequence[str]]


def render(graph: ModelGraph, texts: Texts, notes: Notes, machine: str) -> str:
    """Return the page as text.

    ``texts`` are the stages of each group by key, ``notes`` lines on each group's schedule by key,
    ``machine`` says what the graph was made for.
    """
    environment = Environment(
        loader=PackageLoader(__package__ or __name__.rpartition(".")[0], "."),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = Markup(environment.get_template("page.js.j2").render())
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    page = environment.get_template("page.html.j2").render(
        graph=graph,
        machine=machine,
        totals=_totals(graph),
        pictures=[(c, model_picture(graph, c)) for c in graph.computations],
        style=Markup(STYLE),
        script=script,
        digest=digest,
        facts=_json({"computations": [_computation(graph, c, notes) for c in graph.computations]}),
        texts=_packed(texts),
    )
    return encodable(page)


def _totals(graph: ModelGraph) -> str:
    work, size = graph.totals
    groups = sum(bool(v.key) for c in graph.computations for v in c.vertices)
    keys = {v.key for c in graph.computations for v in c.vertices if v.key}
    return (
        f"{groups} groups, {len(keys)} of them distinct; {work / 1e9:.3g} GFLOP and "
        f"{sized(size)} a run"
    )


def _json(value: Any) -> Markup:
    """Return JSON for a script element, which no text in it can end."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _packed(texts: Texts) -> str:
    data = json.dumps(texts, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _computation(graph: ModelGraph, c: ComputationGraph, notes: Notes) -> dict[str, Any]:
    return {
        "name": c.name,
        "vertices": [_vertex(graph, v, notes.get(v.key, ())) for v in c.vertices],
        "flows": [_flow(f) for f in c.flows],
    }


def _vertex(graph: ModelGraph, v: Vertex, notes: Sequence[str]) -> dict[str, Any]:
    work, size = graph.shares(v)
    facts = [("kind", v.kind), ("result", v.shape)]
    if v.key:
        facts += [
            ("operations", operations_text(v.operations)),
            ("work", f"{v.work / 1e6:.4g} MFLOP, {percent(work)} of the model"),
            ("data", f"{sized(v.bytes)} at least, {percent(size)} of the model"),
            ("constants", sized(v.constants) if v.constants else ""),
            ("parameters", ", ".join(v.parameters)),
            ("runs", f"{v.runs:g} in a run of the model"),
            ("key", v.key),
        ]
    if v.calls:
        facts.append(("runs", ", ".join(v.calls)))
    told = [(name, text) for name, text in facts if text]
    return {"name": v.name, "key": v.key, "facts": told, "why": list(notes)}


def _flow(f: Flow) -> dict[str, Any]:
    return {
        "from": f.source,
        "to": f.target,
        "size": sized(f.bytes),
        "values": f.values,
        "why": f.reasons,
    }
