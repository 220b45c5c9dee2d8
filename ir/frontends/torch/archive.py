"""Saved exported programs (``.pt2``), checked before torch reads them.

``torch.export.load`` unpickles some parts of an archive and evaluates the expressions of symbolic
sizes; later torch runs code that it writes with the names and the guards of the program. So an
archive is read only if none of this is more than it seems: its tensors are raw bytes, its example
inputs pickle nothing but tensors, its sizes are numbers or plain arithmetic of symbols, its names
are plain, its guards compare sizes, and its graph calls no function but operators.
"""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from ...errors import NestwrightError, ParseError, UnsupportedError
from ..declared import Declared
from ..imported import Imported
from ..registry import Shapes
from .export import exported
from .open_programs import declared as of_program

_T = TypeVar("_T")

MAX_GRAPH = 1 << 28  # bytes of the graph's text
_SAVED = "torch.export.save(torch.export.export(model, args), path) with a recent torch makes one"
_UNREAD = "torch.export.load reads a file that you trust: give what it returns"
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|higher_order)\.\w+(\.\w+)?|_operator\.(getitem|add|sub|mul|floordiv|mod"
    r"|neg|eq|ne|lt|le|gt|ge|and_|or_)|math\.\w+|torch\.sym_\w+"
)
_REFUSED = ("torch.ops.aten.from_file",)
_SYMBOL = re.compile(r"Symbol\('(\w{1,40})'(, \w+=True)*\)")
_NUMBER = re.compile(r"-?\d+")
_EXPRESSION = re.compile(
    r"(Symbol\('[su]\d{1,9}'(, (integer|positive|nonnegative)=True)*\)|Integer\(-?\d{1,18}\)"
    r"|(Add|Mul|Min|Max|FloorDiv|CleanDiv|Mod|PythonMod|LessThan|GreaterThan|StrictLessThan"
    r"|StrictGreaterThan|Equality|Unequality|Not)\(|\)|, )+"
)
"""Arithmetic of sizes that calls or values decide, as SymPy writes it, without powers."""
_GUARD = re.compile(
    r"(L(\['[\w .-]{1,200}'\]|\[\d{1,9}\])+\.((size|stride)\(\)\[\d{1,9}\]|storage_offset\(\))"
    r"|\d{1,18}| (<|<=|>|>=|==|!=|\+|-|\*|//|%|and|or) |\*(?!\*)|not |-|\(|\))+"
)
"""What a program requires of the sizes and strides of its inputs, as a comparison in Python."""
_PLAIN = re.compile(r"[\w .:/#+*-]*")
_SPEC = re.compile(r"\[1, (.*)\]", re.DOTALL)


def read(path: Path, shapes: Shapes | None = None) -> Imported:
    """Return the exported program in a file; nothing in it is executed.

    ``shapes`` are the sizes of inputs that the program leaves open. ``ParseError`` for a file that
    is damaged; ``UnsupportedError`` for one that torch would have to unpickle, whose names or
    guards could be code, or that calls something else than operators of ATen.
    """
    return _loaded(path, lambda program: exported(program, shapes=shapes))


def declared(path: Path) -> Declared:
    """Return the sizes that the program in a file declares; errors as for reading it."""
    return _loaded(path, of_program)


def _loaded(path: Path, take: Callable[[Any], _T]) -> _T:
    """Return what ``take`` makes of the program in a file, which is checked first."""
    try:
        import torch
    except ImportError:
        raise UnsupportedError(
            "cannot read an exported program",
            "torch is not installed",
            str(path),
            hint='pip install "nestwright[torch]"',
        ) from None
    causes: list[BaseException] = []
    try:
        with path.open("rb") as file, _kept_from_log(causes):
            _check(file, str(path))
            file.seek(0)
            return take(torch.export.load(file))
    except NestwrightError:
        raise
    except Exception as e:
        cause = causes[0] if causes else e
        told = str(cause).strip().split("\n")[0]
        raise ParseError(
            "cannot read the exported program",
            f"{type(cause).__name__}: {told}",
            str(path),
            _SAVED,
        ) from e


@contextmanager
def _kept_from_log(causes: list[BaseException]) -> Iterator[None]:
    """Collect the errors that torch logs with a traceback before it raises another one."""

    def kept(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            causes.append(error)
        return error is None

    log = logging.getLogger("torch.export")
    log.addFilter(kept)
    try:
        yield
    finally:
        log.removeFilter(kept)


def _check(file: IO[bytes], source: str) -> None:
    """Raise unless torch can read the archive without executing anything."""
    with zipfile.ZipFile(file) as archive:
        names = _names(archive, source)
        graphs = [n for n in names if n.startswith("models/") and n.endswith(".json")]
        if len(graphs) != 1:
            raise UnsupportedError(
                "cannot read the exported program",
                f"the archive has {len(graphs)} programs of a format that is known",
                source,
                _SAVED,
            )
        for name, place in names.items():
            if name.endswith("_config.json"):
                _check_config(_json(archive, place, source), name, source)
            elif name.startswith("data/sample_inputs/"):
                _check_tensors(archive.read(place), source)
            elif name.startswith("data/aotinductor/"):
                raise UnsupportedError("cannot read the package", "it has machine code", source)
        _check_graph(_json(archive, names[graphs[0]], source), source)


def _names(archive: zipfile.ZipFile, source: str) -> dict[str, str]:
    """Return the path of each file by its path in the archive's folder, without capital letters.

    Raises unless that is what torch finds there too: it tells no capital letters, takes one of
    equal names, and unpickles what lies outside of the folder as an older format.
    """
    files = archive.infolist()
    folders = {f.filename.partition("/")[0] for f in files}
    names = {f.filename.partition("/")[2].lower(): f.filename for f in files}
    why = None
    if len(folders) > 1 or "" in names:
        why = "it has files outside of its folder"
    elif len(names) < len(files):
        why = "it has two files of one name"
    elif any(f.compress_type != zipfile.ZIP_STORED for f in files):
        why = "its files are compressed"
    if why is not None:
        raise UnsupportedError("cannot read the exported program", why, source, _SAVED)
    return names


def _json(archive: zipfile.ZipFile, name: str, source: str) -> Any:
    if archive.getinfo(name).file_size > MAX_GRAPH:
        raise ParseError("cannot read the exported program", f"`{name}` is too large", source)
    return json.loads(archive.read(name))


def _check_config(config: Any, name: str, source: str) -> None:
    for key, value in _entries(config):
        if key == "use_pickle" and value:
            raise UnsupportedError(
                "cannot read the exported program",
                f"`{name}` has pickled objects, which are never read",
                source,
                "export the module without custom objects and tensor subclasses",
            )


def _check_tensors(data: bytes, source: str) -> None:
    import torch

    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        raise UnsupportedError(
            "cannot read the exported program",
            "its example inputs pickle more than tensors",
            source,
            "save it without them: program.example_inputs = None",
        ) from None


def _check_graph(graph: Any, source: str) -> None:
    for key, value in _entries(graph, _is_text):
        if told := _danger(key, value):
            why, hint = told
            raise UnsupportedError("cannot read the exported program", why, source, hint)


def _danger(key: str, value: Any) -> tuple[str, str] | None:
    """Return why torch must not see an entry of a graph, and a hint; None if it may."""
    names = list(value) if isinstance(value, list | dict) else [value]
    match key, value:
        case "expr_str", str() if not (_NUMBER.fullmatch(value) or _EXPRESSION.fullmatch(value)):
            named = _SYMBOL.fullmatch(value)
            why = f"it has the symbolic size `{named[1] if named else value[:40]}`"
            return why, "export it without dynamic_shapes"
        case "guards_code", list() if found := [g for g in value if not _GUARD.fullmatch(str(g))]:
            return f"its guard `{str(found[0])[:80]}` is no comparison of sizes", _UNREAD
        case (("target" | "as_operator"), str()) if _calls(value) and not _is_operator(value):
            return f"it calls `{value[:80]}`", "only operators of ATen are compiled"
        case (("in_spec" | "out_spec" | "treespec" | "dataclass_name"), str()) if (
            "default_factory" in value and "builtins" not in value
        ):
            return "its arguments name a module", ""
        case "in_spec", str() if not all(map(str.isidentifier, _keywords(value))):
            return "the name of an argument is none of Python's", ""
        case "forward_arg_names", list() if not all(str(n).isidentifier() for n in value):
            return "the name of an argument is none of Python's", ""
        case (("expr_str" | "guards_code" | "in_spec" | "out_spec" | "treespec"), _):
            return None
        case _ if found := [n for n in names if isinstance(n, str) and not _PLAIN.fullmatch(n)]:
            return f"its `{key}` is `{found[0][:80]}`, which is no name", _UNREAD
    return None


def _keywords(spec: str) -> list[str]:
    """Return the names of arguments by keyword in the tree of a call; "" for what is no tree."""
    found = _SPEC.fullmatch(spec)
    if found is None:
        return [""]
    try:
        _, named = json.loads(found[1])["children_spec"]
        return [str(k) for k in json.loads(named["context"])]
    except (KeyError, TypeError, ValueError, RecursionError):
        return [""]


def _calls(target: str) -> bool:
    """True for what torch would look up as a function; other targets name weights."""
    return target.startswith(("torch", "_operator", "math", "#"))


def _is_operator(target: str) -> bool:
    return bool(_OPERATOR.fullmatch(target)) and not target.startswith(_REFUSED)


def _entries(value: Any, free: Callable[[str, Any], bool] = lambda key, _: False) -> Iterator[Any]:
    """Yield every key of nested objects, with its value, but for those that are ``free``."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found = [(k, v) for k, v in one.items() if not free(k, v)]
            yield from found
            waiting += [v for _, v in found]
        elif isinstance(one, list):
            waiting += one


def _is_text(key: str, value: Any) -> bool:
    """True for texts of a graph that torch never writes into code: values, and notes on nodes."""
    match key, value:
        case "as_string", str():
            return True
        case "as_strings", list():
            return all(isinstance(v, str) for v in value)
        case "metadata", dict():
            return all(isinstance(v, str) for v in value.values())
    return False
