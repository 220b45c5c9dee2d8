"""The house has floors: a folder imports only what stands below it, and there is no circle."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Bottom to top. te and schedule stand side by side: neither imports the other.
FLOORS = {"ir": 0, "te": 1, "schedule": 1, "codegen": 2, "autotune": 3, "cli": 4}
# Two languages of one floor that do not know each other.
APART = {frozenset({("ir", "hlo"), ("ir", "loop")})}
VAGUE = {"utils", "helpers", "common", "misc"}


def package_files() -> list[Path]:
    return [p for floor in FLOORS for p in sorted((ROOT / floor).rglob("*.py"))]


def imported(path: Path) -> list[tuple[int, tuple[str, ...]]]:
    """(line, module path from the root) of each import of our own code in a file."""
    here = path.relative_to(ROOT).parts
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if (isinstance(node, ast.ImportFrom) and node.level == 0) or isinstance(node, ast.Import):
            names = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            assert not any((n or "").split(".")[0] == "nestwright" for n in names), (
                f"{path}:{node.lineno}: use a relative import inside the package"
            )
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level]
            module = (*base, *(node.module.split(".") if node.module else ()))
            found += [(node.lineno, (*module, alias.name)) for alias in node.names]
    return found


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


@pytest.mark.parametrize("path", package_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downward(path: Path) -> None:
    floor = path.relative_to(ROOT).parts[0]
    for line, module in imported(path):
        assert module[0] in FLOORS, f"line {line}: imports the package's own face"
        below = FLOORS[module[0]] < FLOORS[floor] or module[0] == floor
        assert below, f"line {line}: {floor} -> {module[0]}"
        rooms = frozenset({path.relative_to(ROOT).parts[:2], module[:2]})
        assert rooms not in APART, f"line {line}: imports {'.'.join(module[:2])}"


def test_no_import_circle() -> None:
    arrows = {
        p: {q for _, m in imported(p) if (q := resolve(m)) is not None and q != p}
        for p in package_files()
    }
    done: set[Path] = set()

    def visit(path: Path, trail: tuple[Path, ...]) -> None:
        if path in trail:
            circle = [str(p.relative_to(ROOT)) for p in (*trail[trail.index(path) :], path)]
            pytest.fail("import circle: " + " -> ".join(circle))
        if path not in done:
            for target in sorted(arrows.get(path, ())):
                visit(target, (*trail, path))
            done.add(path)

    for path in arrows:
        visit(path, ())


@pytest.mark.parametrize("path", package_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_file_says_what_it_is_for(path: Path) -> None:
    assert path.stem not in VAGUE, "a name that explains nothing"
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc and doc.splitlines()[0].strip(), "the first line says what the file is for"


def test_every_package_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {"nestwright"} | {
        ".".join(["nestwright", *p.parent.relative_to(ROOT).parts])
        for floor in FLOORS
        for p in (ROOT / floor).rglob("__init__.py")
    }
    assert listed == found


def test_every_template_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]
    listed = set(project["tool"]["setuptools"]["packages"])
    found = [
        p for floor in FLOORS for end in ("ll", "j2") for p in (ROOT / floor).rglob(f"*.{end}")
    ]
    assert found
    for path in found:
        package = ".".join(["nestwright", *path.parent.relative_to(ROOT).parts])
        patterns = [*data["*"], *data.get(package, ())]
        assert package in listed and any(path.match(pattern) for pattern in patterns), path


def test_face_is_light() -> None:
    """Importing the package loads neither LLVM, a tuner, nor the compiler under a second name."""
    code = (
        "import sys, nestwright; "
        "heavy = {'llvmlite', 'xgboost', 'optuna', 'rich', 'jinja2', 'ml_dtypes', 'numpy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_compiler_is_loaded_once() -> None:
    """pytest imports the root package under the checkout's name; nothing heavy may follow it."""
    twins = [
        name
        for name in sys.modules
        if name.endswith((".ir.hlo.nodes", ".ir.loop.nodes")) and not name.startswith("nestwright.")
    ]
    assert not twins
