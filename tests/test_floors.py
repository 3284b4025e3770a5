"""The architecture: imports point to lower floors, heavy libraries wait until they are needed, names are handed on."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import helpers

PACKAGE = Path(helpers.__file__).parent
FLOORS = {
    "rosenbrock": 1,
    "noise": 1,
    "reached": 1,  # what a function reaches: asked in the bridge, in workers and by the doctor
    "tasks": 1.5,  # what a worker process does for the bridge
    "turns": 1,
    "states": 1,
    "pools": 1,
    "progress": 1,
    "differences": 1,  # what a derivative is compared with, in the bridge and in checking
    "bridge": 2,
    "checking": 2,
    "descent": 3,
    "listing": 3,
    "doctor": 3,
    "requirements": 3,
    "picture": 3.5,  # no plot itself: what the plots stand on
    "solvers": 4,
    "plots": 4,
    "bars": 4,
    "curves": 4,
    "diagrams": 4,
    "fields": 4,
    "heat_maps": 4,
    "many_runs": 4,
    "time_series": 4,
    "timelines": 4,
    "explorer": 5,
    "exercises": 5,
}
DRAWING = {"plots", "bars", "curves", "diagrams", "fields", "heat_maps", "many_runs", "time_series", "timelines"}
MAY_DRAW = {"picture", *DRAWING, "explorer", "exercises"}
MAY_KNOW_ROSENBROCK = {"rosenbrock", "plots", "explorer", "exercises"}
FILES = {path: path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {path: module for path, module in FILES.items() if module != "__init__"}

every_file = pytest.mark.parametrize(
    ("path", "module"), MODULES.items(), ids=[str(path.relative_to(PACKAGE)) for path in MODULES]
)


def imports(path):
    """Return the full name of everything that a file imports, wherever in the file it does so."""
    package = ["helpers", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{start}.{alias.name}" for alias in node.names}
    return names


def imported_modules(path):
    """Return the modules of helpers that a file imports; a public name counts as the module it comes from."""
    found = {name.split(".")[1] for name in imports(path) if name.startswith("helpers.")}
    return {helpers._HOME.get(name, name) for name in found}


def top_level(path):
    return {name.split(".")[0] for name in imports(path)}


@every_file
def test_each_module_has_a_floor(path, module):
    assert module in FLOORS


@every_file
def test_imports_point_to_lower_floors_only(path, module):
    too_high = {other for other in imported_modules(path) - {module} if FLOORS[other] >= FLOORS[module]}
    assert not too_high


@every_file
def test_nothing_below_the_plots_imports_matplotlib(path, module):
    assert module in MAY_DRAW or not {"matplotlib", "mpl_toolkits"} & top_level(path)


@every_file
def test_nothing_below_the_plots_reaches_them_through_another_module(path, module):
    assert module in MAY_DRAW or not MAY_DRAW & imported_modules(path)


@every_file
def test_nothing_uses_pyplot(path, module):
    assert not {name for name in imports(path) if name.startswith(("matplotlib.pyplot", "pylab"))}


@every_file
def test_only_the_explorer_imports_ipywidgets(path, module):
    assert module == "explorer" or not {"ipywidgets", "anywidget"} & top_level(path)


@every_file
def test_only_rosenbrock_and_what_shows_it_know_the_function(path, module):
    assert module in MAY_KNOW_ROSENBROCK or "rosenbrock" not in imported_modules(path)


@pytest.mark.parametrize("module", ["rosenbrock", "noise", "differences"])
def test_the_lowest_floor_needs_numpy_only(module):
    assert top_level(PACKAGE / f"{module}.py") - sys.stdlib_module_names == {"numpy"}


def loaded_after(program):
    """Return which heavy libraries a program loads in a new process."""
    heavy = "torch", "matplotlib", "ipywidgets", "IPython", "packaging"
    report = f"import sys; print(*(name for name in {heavy!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", f"{program}\n{report}"], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "program",
    [
        "import helpers",
        "from helpers import rosenbrock; rosenbrock.hessian([0.1, 0.1])",
        "from helpers import noise, NoisyPair, UniformFactor, GaussianFactor",
        "from helpers.exercises import engine",
        "import helpers.solvers, helpers.tasks, helpers.pools",
    ],
)
def test_the_light_modules_load_no_heavy_library(program):
    assert loaded_after(program) == set()


def test_pictures_load_matplotlib_but_no_pyplot_and_no_torch():
    program = "from helpers import diagrams; diagrams.calls(['a', 'b'], title='t').png()"
    checked = f"{program}\nimport sys; assert 'matplotlib.pyplot' not in sys.modules"
    assert "torch" not in loaded_after(checked)


# --- the public names


def type_checking_names():
    """Return the names in the block that only type checkers read, with the module each comes from."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {alias.name: statement.module for statement in block.body for alias in statement.names}


def test_all_is_sorted_and_holds_every_public_name_once():
    assert helpers.__all__ == sorted(set(helpers.__all__))
    assert set(helpers.__all__) == {*helpers._HOME, *helpers._MODULES}


def test_type_checkers_read_the_same_names_from_the_same_modules():
    assert type_checking_names() == {**helpers._HOME, **dict.fromkeys(helpers._MODULES)}


@pytest.mark.parametrize("name", helpers.__all__)
def test_each_public_name_is_the_one_of_its_module(name):
    home = helpers._HOME.get(name)
    module = import_module(f"helpers.{home or name}")
    assert getattr(helpers, name) is (getattr(module, name) if home else module)


@pytest.mark.parametrize("name", helpers.__all__)
def test_each_public_name_is_documented(name):
    assert getattr(helpers, name).__doc__


def test_dir_lists_the_public_names():
    assert dir(helpers) == helpers.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'helpers' has no attribute 'rosenbrok'"):
        _ = helpers.rosenbrok


def test_the_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").is_file()
