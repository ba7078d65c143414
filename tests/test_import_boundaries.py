"""Who may import whom: what draws and what reads loads no torch, the engine knows no screen, imports load no weights."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "specviz"

HEAVY = ("torch", "transformers", "accelerate", "optimum", "gguf", "numpy")
SCREEN = ("gradio", "plotly")

# Folders and modules (as path prefixes inside the package), and what they may not load, not even at second hand.
MUST_NOT_LOAD = {
    "__init__.py": (*HEAVY, *SCREEN),
    "errors.py": (*HEAVY, *SCREEN),
    "config.py": (*HEAVY, *SCREEN),
    "events.py": (*HEAVY, *SCREEN),
    "metrics.py": (*HEAVY, *SCREEN),
    "theory.py": (*HEAVY, *SCREEN),
    "glossary.py": (*HEAVY, *SCREEN),
    "presets.py": (*HEAVY, *SCREEN),
    "runs.py": (*HEAVY, *SCREEN),
    "trace/": (*HEAVY, *SCREEN),
    "lab/": (*HEAVY, *SCREEN),
    "commands/": (*HEAVY, *SCREEN),
    "__main__.py": (*HEAVY, *SCREEN),
    "ui/": ("torch", "transformers", "accelerate", "optimum", "gguf"),
    "engine/": SCREEN,
    "drafters/": SCREEN,
    "early_exit/": SCREEN,
    "early_exit/exit_run.py": (*HEAVY, *SCREEN),
    "early_exit/exit_settings.py": (*HEAVY, *SCREEN),
    "early_exit/simulate.py": (*HEAVY, *SCREEN),
    "training/": SCREEN,
}


def modules_under(prefix: str) -> list[Path]:
    path = PACKAGE / prefix
    return sorted(path.rglob("*.py")) if prefix.endswith("/") else [path]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_after_importing(names: list[str]) -> set[str]:
    """The top-level packages in memory of a fresh Python that imported these modules."""
    code = f"import sys, {', '.join(names)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.parametrize("prefix", MUST_NOT_LOAD)
def test_importing_loads_none_of_what_it_must_not(prefix):
    names = [module_name(path) for path in modules_under(prefix)]
    assert names, prefix
    unwanted = loaded_after_importing(names) & set(MUST_NOT_LOAD[prefix])
    assert not unwanted, f"{names} load {sorted(unwanted)}"


def test_every_part_of_the_package_has_its_rule():
    known = tuple(prefix.rstrip("/") for prefix in MUST_NOT_LOAD)
    small = {"cache.py", "progress.py", "hub.py"}  # helpers, checked below
    parts = {
        path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }
    assert parts - set(known) - small == set()


@pytest.mark.parametrize("name", ["cache.py", "progress.py", "hub.py"])
def test_the_small_helpers_are_light(name):
    if not (PACKAGE / name).exists():
        pytest.skip(f"there is no {name}")
    assert not loaded_after_importing([module_name(PACKAGE / name)]) & {*HEAVY, *SCREEN}


# --- the same, read from the source -----------------------------------------------------------


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at the top of the file outside TYPE_CHECKING) of every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for statement in block.body
        for node in ast.walk(statement)
    }
    top_level = {id(statement) for statement in tree.body}
    found = []
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top_level) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "", id(node) in top_level))
    return found


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in modules_under(folder)]


@pytest.mark.parametrize("path", files("engine/", "drafters/", "early_exit/"), ids=module_name)
def test_the_engine_never_imports_a_screen_not_even_late(path):
    for module, _ in imports_of(path):
        assert module.partition(".")[0] not in SCREEN
        assert not module.startswith(("specviz.ui", "specviz.commands"))


TRANSFORMERS_ONLY_IN = {
    "engine/hf_layerwise.py",
    "engine/hf_model.py",
    "engine/kv_cache.py",
    "engine/loader.py",
    "engine/pairing.py",
    "engine/draft_modules.py",
    "engine/embedded_conversion.py",
    "engine/lean_loading.py",
    "engine/lean_weights.py",
}


@pytest.mark.parametrize("path", files("engine/", "drafters/", "early_exit/"), ids=module_name)
def test_transformers_is_imported_only_by_its_adapters(path):
    uses_it = any(module.partition(".")[0] == "transformers" for module, _ in imports_of(path))
    assert not uses_it or path.relative_to(PACKAGE).as_posix() in TRANSFORMERS_ONLY_IN


@pytest.mark.parametrize("path", files("ui/"), ids=module_name)
def test_the_screen_never_imports_torch_not_even_late(path):
    for module, _ in imports_of(path):
        assert module.partition(".")[0] not in ("torch", "transformers")


@pytest.mark.parametrize("path", files("trace/", "metrics.py", "theory.py", "events.py", "config.py"), ids=module_name)
def test_what_only_reads_imports_no_engine(path):
    for module, _ in imports_of(path):
        assert not module.startswith(("specviz.engine", "specviz.drafters", "specviz.ui"))


def test_importing_a_module_loads_no_weights_and_opens_no_socket():
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise SystemExit('a socket was opened')\n"
        "socket.socket.connect = refuse\n"
        "import specviz.runs, specviz.engine.loader, specviz.engine.speculative, specviz.drafters, app\n"
        "import gc, torch\n"
        "print(sum(t.numel() for t in gc.get_objects() if issubclass(type(t), torch.nn.Parameter)))\n"
    )
    if not (ROOT / "app.py").exists():
        code = code.replace(", app\n", "\n")
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split()[-1] == "0"
