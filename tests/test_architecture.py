"""Imports run downward without circles, folders are small, and public names are documented."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias, get_args

import pytest

from nestwright.ir.target import HERE, KINDS

ROOT = Path(__file__).parents[1]
# Bottom to top. te and schedule stand side by side: neither imports the other.
LAYERS = {"ir": 0, "te": 1, "schedule": 1, "codegen": 2, "autotune": 3, "cli": 4, "interop": 4}
# Two languages of one layer that do not know each other.
APART = {frozenset({("ir", "hlo"), ("ir", "loop")})}
VAGUE = {"utils", "helpers", "common", "misc"}
MOST_FILES = 26  # files straight in a folder that a reader can take in at once
MODEL = str(ROOT / "examples" / "softmax.hlo")
LONGEST = 600  # lines of a test file
LARGEST = 1 << 20  # bytes of a tracked file
RUNS = ("ir", "codegen/plan", "codegen/runtime", "codegen/targets/registry.py")
"""What running a built model may import: plan data and what is below it, no emitter."""


EVALUATES = re.compile(r"\b(?<![.\w])(eval|exec)\(")
COMPILES_TEXT = {"ir/loop/nodes.py", "ir/loop/interp/indices.py"}
"""What makes functions of text that it writes itself, of no name or text of a file."""

RIDDLE = re.compile(r"(What|Whether|Which)\b")

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def package_files() -> list[Path]:
    return [p for layer in LAYERS for p in sorted((ROOT / layer).rglob("*.py"))]


MOST_ARGUMENTS = 8
"""Arguments by place of which an object is made; with more, nobody knows which is which."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the definitions of one file are called and say, and what the file imports."""

    undocumented: tuple[str, ...]
    riddles: tuple[str, ...]
    classes: tuple[str, ...]
    imports: tuple[tuple[int, tuple[str, ...]], ...]  # line, module path from the root
    absolute: tuple[int, ...]  # lines that import the package by its name
    nameless: tuple[int, ...]  # lines of objects made of more arguments than one can tell apart


@cache
def page(path: Path) -> Page:
    """A file of the package, parsed and walked once for all that asks of it."""
    tree = ast.parse(path.read_text())
    kinds = (ast.Import, ast.ImportFrom, ast.Call, *get_args(Definition))
    nodes = [n for n in ast.walk(tree) if isinstance(n, kinds)]
    here = path.relative_to(ROOT).parts
    imports: list[tuple[int, tuple[str, ...]]] = []
    absolute: list[int] = []
    nameless: list[int] = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=made), args=args):
                told = [a for a in args if not isinstance(a, ast.Constant)]
                if made.lstrip("_")[:1].isupper() and len(told) > MOST_ARGUMENTS:
                    nameless.append(node.lineno)
            case ast.ImportFrom(level=level) if level > 0:
                base = here[: len(here) - level]
                module = (*base, *(node.module.split(".") if node.module else ()))
                imports += [(node.lineno, (*module, alias.name)) for alias in node.names]
            case ast.Import() | ast.ImportFrom():
                named = [getattr(node, "module", None), *(a.name for a in node.names)]
                if any(str(n).split(".")[0] == "nestwright" for n in named):
                    absolute.append(node.lineno)
    classes = (n.name for n in nodes if isinstance(n, ast.ClassDef))
    said = riddles([tree, *nodes])
    return Page(
        undocumented=(*undocumented(tree.body),),
        riddles=(*said,),
        classes=(*classes,),
        imports=(*imports,),
        absolute=(*absolute,),
        nameless=(*nameless,),
    )


@cache
def resolve(module: tuple[str, ...]) -> Path | None:
    """The file that a dotted path from the root names (its last part may be a name in it)."""
    for parts in (module, module[:-1]):
        for file in (
            ROOT.joinpath(*parts).with_suffix(".py"),
            ROOT.joinpath(*parts, "__init__.py"),
        ):
            if parts and file.is_file():
                return file
    return None


def upward(here: tuple[str, ...], module: tuple[str, ...]) -> str:
    """Why a file (its parts from the root) may not import a module; empty where it may."""
    if module[0] not in LAYERS:
        return "imports the package's own face"
    if module[0] != here[0] and LAYERS[module[0]] >= LAYERS[here[0]]:
        return f"{here[0]} -> {module[0]}"
    return f"imports {'.'.join(module[:2])}" if frozenset({here[:2], module[:2]}) in APART else ""


def test_imports_run_downward() -> None:
    for path in package_files():
        here = path.relative_to(ROOT).parts
        for line, module in page(path).imports:
            assert not (why := upward(here, module)), f"{name(path)}:{line}: {why}"


def test_imports_are_relative() -> None:
    assert [f"{name(p)}:{n}" for p in package_files() for n in page(p).absolute] == []


def test_imports_that_run_upward_are_found() -> None:
    assert upward(("te", "lower.py"), ("build",)) == "imports the package's own face"
    assert upward(("te", "lower.py"), ("codegen", "plan")) == "te -> codegen"
    assert upward(("te", "lower.py"), ("schedule", "cursor")) == "te -> schedule"
    assert upward(("ir", "hlo", "nodes.py"), ("ir", "loop", "nodes")) == "imports ir.loop"
    assert not upward(("te", "lower.py"), ("ir", "loop", "nodes"))
    assert not upward(("te", "lower.py"), ("te", "nodes"))


@cache
def arrows() -> dict[Path, set[Path]]:
    """The files of our own that each file imports."""
    return {
        p: {q for _, m in page(p).imports if (q := resolve(m)) is not None and q != p}
        for p in package_files()
    }


def circle(graph: Mapping[Path, Set[Path]]) -> list[str]:
    """A circle of a graph, as paths from the root; empty where there is none."""
    done: set[Path] = set()

    def visit(path: Path, trail: tuple[Path, ...]) -> list[str]:
        if path in trail:
            return [str(p.relative_to(ROOT)) for p in (*trail[trail.index(path) :], path)]
        if path not in done:
            for target in sorted(graph.get(path, ())):
                if found := visit(target, (*trail, path)):
                    return found
            done.add(path)
        return []

    return next((found for path in graph if (found := visit(path, ()))), [])


def test_no_circle_of_files() -> None:
    assert circle(arrows()) == []


def test_no_circle_of_folders() -> None:
    """A folder's ``__init__`` is its face and may name what lies in it and below."""
    graph: dict[Path, set[Path]] = {}
    for path, targets in arrows().items():
        if path.name != "__init__.py":
            graph.setdefault(path.parent, set()).update(
                t.parent for t in targets if t.parent != path.parent
            )
    assert circle(graph) == []


def test_circles_are_found() -> None:
    a, b, c = (ROOT / name for name in "abc")
    assert circle({a: {b}, b: {c}, c: {b}}) == ["b", "c", "b"]
    assert circle({a: {b, c}, b: {c}, c: set()}) == []


def test_rooms_are_small() -> None:
    files = [*package_files(), *(ROOT / "tests").rglob("*.py")]
    folders = Counter(p.parent for p in files if p.name != "__init__.py")
    assert {str(r.relative_to(ROOT)): n for r, n in folders.items() if n > MOST_FILES} == {}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: what is tracked?")
def test_nothing_large_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    assert [f for f in files if f.is_file() and f.stat().st_size > LARGEST] == []


def test_tests_are_short_enough_to_read() -> None:
    lines = {p: len(p.read_text().splitlines()) for p in (ROOT / "tests").rglob("*.py")}
    assert {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > LONGEST} == {}


def test_what_runs_a_model_imports_no_compiler() -> None:
    files = sorted((ROOT / "codegen" / "runtime").rglob("*.py"))
    assert files
    for path in files:
        for line, module in page(path).imports:
            file = resolve(module)
            assert file is None or name(file).startswith(RUNS), f"{name(path)}:{line}"


KINDS_ARE_KNOWN_IN = ("ir/target.py", "ir/targets/", "ir/gpus.py", "codegen/targets/")
"""All that depends on the kind of a target is in the rows and backends of these."""
TARGETS = {"target", "machine", "host"}  # what a target is called
ASKING = re.compile(rf"""is_gpu|({"|".join(TARGETS)})\.kind|["']({"|".join(KINDS)})""")
"""A part of each text that asks for a kind: most files need not be parsed."""


def asks_for_a_kind(text: str) -> list[str]:
    """The places of a file that ask a target for its kind, or that name one."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)) if ASKING.search(text) else ():
        match node:
            case ast.Attribute(attr="is_gpu"):
                found.append((node.lineno, "asks is_gpu"))
            case ast.Attribute(attr="kind", value=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in TARGETS
            ):
                found.append((node.lineno, "asks for the kind of a target"))
            case ast.Compare(left=left, comparators=others) if any(map(is_kind, (left, *others))):
                found.append((node.lineno, "compares with the name of a kind"))
            case ast.MatchValue(value=value) if is_kind(value):
                found.append((value.lineno, "matches the name of a kind"))
            case ast.Constant(value=str(value)) if value.split(" -")[0] in set(KINDS) - AMBIGUOUS:
                found.append((node.lineno, f"names {value!r}"))
    return [f"line {line}: {what}" for line, what in sorted(found)]


AMBIGUOUS = {HERE, "llvm"}  # these name this machine, and a stage, as well


def is_kind(node: ast.expr) -> bool:
    """True for a literal that is the name of a kind, or a collection that has one."""
    match node:
        case ast.Constant(value=value):
            return value in KINDS
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(map(is_kind, parts))
        case _:
            return False


def test_nothing_is_evaluated() -> None:
    found = {str(p.relative_to(ROOT)) for p in package_files() if EVALUATES.search(p.read_text())}
    assert found == COMPILES_TEXT


def test_targets_are_asked_for_facts_not_for_their_kind() -> None:
    others = [p for p in package_files() if not name(p).startswith(KINDS_ARE_KNOWN_IN)]
    asked = {name(p): asks_for_a_kind(p.read_text()) for p in others}
    assert {path: found for path, found in asked.items() if found} == {}


@pytest.mark.parametrize(
    "text",
    [
        "x = target.is_gpu",
        "x = self.plan.target.kind",
        "x = spec == 'cpu'",
        "x = name in ('cpu', 'gpu')",
        "match x:\n    case 'llvm':\n        pass",
        "x = Target.parse('cuda -arch=sm_80')",
        "x = {'cuda-sim': 1}",
    ],
)
def test_questions_for_a_kind_are_found(text: str) -> None:
    assert len(asks_for_a_kind(text)) == 1
    assert asks_for_a_kind("x = sketch.kind == dtype.kind, 'such as \"cuda\"', {'cpu': 1}") == []


def test_files_say_what_they_are_for() -> None:
    for path in package_files():
        assert path.stem not in VAGUE, f"{name(path)}: a name that explains nothing"
        start, doc, *_ = [*path.read_text().split('"""', 2), ""]
        says = not start and doc.splitlines()[0].strip()
        assert says, f"{name(path)}: the first line says what the file is for"


def undocumented(body: list[ast.stmt], outer: str = "") -> Iterator[str]:
    """Yield public classes, functions and methods without a docstring, as ``Class.method``."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            marks = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
            said = ast.get_docstring(node, clean=False) is not None
            if not said and not marks & {"overload", "override"}:
                yield outer + node.name
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node.body, f"{outer}{node.name}.")


def riddles(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield docstrings, private ones included, that begin with What, Whether or Which."""
    for node in nodes:
        if isinstance(node, Definition | ast.Module):
            text = (ast.get_docstring(node, clean=False) or "").strip()
            if RIDDLE.match(text):
                yield text.splitlines()[0]


def test_objects_of_many_parts_name_them() -> None:
    assert [f"{name(p)}:{line}" for p in package_files() for line in page(p).nameless] == []


def test_public_names_have_docstrings() -> None:
    assert [f"{name(p)}: {n}" for p in package_files() for n in page(p).undocumented] == []


def test_docstrings_say_what_is_returned_or_done() -> None:
    assert [f"{name(p)}: {text}" for p in package_files() for text in page(p).riddles] == []


def test_no_two_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in package_files():
        for found in page(path).classes:
            homes.setdefault(found, []).append(name(path))
    assert {n: at for n, at in homes.items() if len(at) > 1} == {}


def test_formatter_formats_everything() -> None:
    skip = "fmt: " + "skip"
    others = [p for f in ("tests", "benchmarks", "examples") for p in (ROOT / f).rglob("*.py")]
    assert [name(p) for p in (*package_files(), *others) if skip in p.read_text()] == []


def test_faults_of_docstrings_are_found() -> None:
    source = """
class Box:
    def size(self): ...
    def _own(self): "Whether it is open."
def _lid():
    def inner(): ...
def height(): "Return metres."
"""
    tree = ast.parse(source)
    assert list(undocumented(tree.body)) == ["Box", "Box.size"]
    assert list(riddles(ast.walk(tree))) == ["Whether it is open."]


def test_every_package_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {"nestwright"} | {
        ".".join(["nestwright", *p.parent.relative_to(ROOT).parts])
        for layer in LAYERS
        for p in (ROOT / layer).rglob("__init__.py")
    }
    assert listed == found


def test_every_template_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]
    listed = set(project["tool"]["setuptools"]["packages"])
    found = [
        p
        for layer in LAYERS
        for end in ("ll", "j2", "css", "js")
        for p in (ROOT / layer).rglob(f"*.{end}")
    ]
    assert found
    for path in found:
        package = ".".join(["nestwright", *path.parent.relative_to(ROOT).parts])
        patterns = [*data["*"], *data.get(package, ())]
        assert package in listed and any(path.match(pattern) for pattern in patterns), path


@pytest.mark.parametrize("module", ["nestwright", "nestwright.cli.main"])
def test_face_is_light(module: str) -> None:
    """Importing the package, or what `--help` needs, loads neither LLVM, a tuner, nor NumPy."""
    code = (
        f"import sys, {module}; "
        "heavy = {'llvmlite', 'xgboost', 'optuna', 'rich', 'jinja2', 'ml_dtypes', 'numpy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


LOADED = "nw.load({built!r})"
COMPILER = ("te", "schedule.language", "codegen.emit", "codegen.lower", "codegen.math")
LIGHT = {
    "nw.build": (48, COMPILER),
    "nw.parse": (38, (*COMPILER, "schedule", "autotune", "codegen", "ir.loop")),
    "nw.load": (29, (*COMPILER, "schedule", "autotune", "ir.hlo", "ir.loop")),
    LOADED: (47, (*COMPILER, "schedule", "autotune", "ir.hlo", "ir.loop")),
    "nw.build({model!r})": (92, COMPILER),
    "{main}(['show', {model!r}, '--stage', 'hlo'])": (70, (*COMPILER, "schedule", "ir.loop")),
    "{main}(['--help'])": (
        34,
        (*COMPILER, "schedule", "autotune", "codegen", "ir.hlo", "ir.loop"),
    ),
}
"""What may be done with so many modules of ours, and of which folders none may be loaded for it."""
SLOW = {"difflib", "hashlib", "pathlib", "subprocess", "tempfile", "urllib.parse", "zipfile"}
"""Modules that take milliseconds, and that neither NumPy nor a built model needs."""
GENERATED = 9  # dataclasses that a built model may take: the code of each is compiled at its start
MAIN = "from nestwright.cli.main import main; main"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a built model that is also in the cache there."""
    folder = tmp_path_factory.mktemp("built")
    make = f"import nestwright as nw; nw.build({MODEL!r}).save({str(folder / 'softmax.nw')!r})"
    subprocess.run([sys.executable, "-c", make], check=True, env=cached(folder))
    return folder


def cached(folder: Path) -> dict[str, str]:
    return {**os.environ, "NESTWRIGHT_CACHE": str(folder / "kept")}


@pytest.mark.parametrize("action", LIGHT)
def test_what_needs_no_compiler_is_light(built: Path, action: str) -> None:
    action_text = action.format(main=MAIN, model=MODEL, built=str(built / "softmax.nw"))
    code = (
        f"import sys, nestwright as nw; {action_text}; "
        "print('\\n', *(m for m in sys.modules if m.startswith('nestwright.')))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=cached(built)
    )
    found = [m.removeprefix("nestwright.") for m in out.stdout.splitlines()[-1].split()]
    most, folders = LIGHT[action]
    heavy = tuple(f"{name}." for name in folders)
    assert [m for m in found if f"{m}.".startswith(heavy)] == []
    assert 0 < len(found) <= most


def test_a_built_model_starts_fast(built: Path) -> None:
    """Of what takes a start's time: modules beyond NumPy's, and classes that are compiled."""
    code = (
        "import sys, numpy as np; before = set(sys.modules); import nestwright as nw; "
        f"nw.load({str(built / 'softmax.nw')!r})(np.zeros((16, 64), np.float32)); "
        "ours = [m for m in sys.modules.values() if m.__name__.startswith('nestwright.')]; "
        "made = {c for m in ours for c in vars(m).values() if isinstance(c, type)}; "
        "print(*(c.__name__ for c in made if '__dataclass_fields__' in vars(c))); "
        "print(*sys.modules.keys() - before)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    generated, modules = (set(line.split()) for line in out.stdout.splitlines())
    assert not modules & SLOW
    assert {"Target"} <= generated and len(generated) <= GENERATED


def test_compiler_is_loaded_once() -> None:
    """pytest imports the root package under the checkout's name; nothing heavy may follow it."""
    twins = [
        name
        for name in sys.modules
        if name.endswith((".ir.hlo.nodes", ".ir.loop.nodes")) and not name.startswith("nestwright.")
    ]
    assert not twins


def test_the_corpus_is_looked_for_where_it_is() -> None:
    """A path that counts folders is wrong once its file moves, and its tests are then skipped."""
    beside = re.compile(r'Path\(__file__\)\.parents\[(\d+)\]((?:\.parent)*)\s*/\s*\(?\s*"shared\b')
    wrong = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        for found in beside.finditer(path.read_text())
        if path.parents[int(found[1]) + found[2].count(".parent")] != ROOT.parent
    ]
    assert wrong == []
