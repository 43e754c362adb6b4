from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import rlkit
from rlkit.runs import keys, sources
from rlkit.runs.digest import Unhashable, digest
from rlkit.runs.keys import Run, key_of, run_parts

ROOT = Path(rlkit.__file__).parent.parent
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=12,
)


def cell(source: str, **names: Any) -> Any:
    """The functions that a notebook cell defines: their module is `__main__`, and they have no file."""
    space = {"__name__": "__main__", **names}
    exec(compile(source, "<cell>", "exec"), space)
    return space


@given(VALUES)
def test_equal_values_have_equal_digests_also_after_pickling(value: Any) -> None:
    assert digest(value) == digest(cloudpickle.loads(cloudpickle.dumps(value)))


@given(VALUES, VALUES)
def test_values_that_print_differently_have_different_digests(a: Any, b: Any) -> None:
    if repr(a) != repr(b) and a != b:
        assert digest(a) != digest(b)


def test_types_and_order_count_where_they_matter() -> None:
    different = [1, 1.0, True, "1", b"1", [1], (1,), {1}, {"1": 1}, None, np.array([1]), torch.tensor([1])]
    assert len({digest(value) for value in different}) == len(different)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest([1, 2]) != digest([2, 1])
    assert digest({"x", "y", "z"}) == digest({"z", "y", "x"})
    assert digest(np.float64(0.1)) == digest(0.1)


def test_arrays_tensors_models_and_data_sets_count_by_content() -> None:
    assert digest(torch.zeros(3)) == digest(torch.zeros(3)) != digest(torch.ones(3))
    assert digest(torch.zeros(3, dtype=torch.bfloat16)) != digest(torch.zeros(3))
    assert digest(Dataset.from_dict({"prompt": ["a"]})) == digest(Dataset.from_dict({"prompt": ["a"]}))
    assert digest(Dataset.from_dict({"prompt": ["a"]})) != digest(Dataset.from_dict({"prompt": ["b"]}))
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    before = digest(model)
    with torch.no_grad():
        model.weight[0, 0] += 1e-7
    assert digest(model) != before


def test_a_value_that_holds_itself_ends() -> None:
    loop: list = [1]
    loop.append(loop)
    other: list = [2]
    other.append(other)
    assert digest(loop) != digest(other)


SOURCE = """
scale = 2.0
def helper(x):
    return x * scale
def f(x, y=1):
    return [helper(x) + y for _ in range(3)]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * scale", "x / scale"),  # a function that it calls
        ("scale = 2.0", "scale = 3.0"),  # a global that this function reads
        ("y=1", "y=2"),  # a default
        ("range(3)", "range(4)"),  # a constant
        ("helper(x) + y", "y + helper(x)"),
    ],
)
def test_a_cell_function_counts_with_all_that_it_reads(old: str, new: str) -> None:
    assert digest(cell(SOURCE)["f"]) == digest(cell(SOURCE)["f"])
    assert digest(cell(SOURCE)["f"]) != digest(cell(SOURCE.replace(old, new))["f"])


def test_what_a_cell_function_does_not_read_does_not_count() -> None:
    moved = "\n\nunrelated = 5\n" + SOURCE.replace("def f", "# a comment\ndef f") + "\ndef g():\n    return unrelated\n"
    assert digest(cell(SOURCE)["f"]) == digest(cell(moved)["f"])


def test_closures_nested_functions_and_wrappers_count() -> None:
    maker = "def make(k):\n    def f(x):\n        return (lambda z: z + k)(x)\n    return f\n"
    make = cell(maker)["make"]
    assert digest(make(1)) == digest(make(1)) != digest(make(2))
    assert digest(make(1)) != digest(cell(maker.replace("z + k", "z - k"))["make"](1))
    cached = "import functools\n@functools.lru_cache\ndef f(x):\n    return x + 1\n"
    assert digest(cell(cached)["f"]) != digest(cell(cached.replace("+ 1", "+ 2"))["f"])
    assert digest(functools.partial(make(1), 3)) != digest(functools.partial(make(1), 4))


def test_a_class_of_a_cell_counts_by_its_methods() -> None:
    source = "class A:\n    k = 1\n    def m(self):\n        return self.k\ndef f():\n    return A().m()\n"
    same = digest(cell(source)["f"])
    assert same == digest(cell(source)["f"])
    assert same != digest(cell(source.replace("return self.k", "return -self.k"))["f"])
    assert same != digest(cell(source.replace("k = 1", "k = 2"))["f"])


def test_recursion_ends() -> None:
    source = "def odd(n):\n    return n and even(n - 1)\ndef even(n):\n    return not n or odd(n - 1)\n"
    assert digest(cell(source)["odd"]) == digest(cell(source)["odd"])


def test_running_a_function_does_not_change_its_digest() -> None:
    f = cell(SOURCE)["f"]
    before = digest(f)
    for _ in range(200):  # the interpreter specialises bytecode that runs often
        f(1)
    assert digest(f) == before


def test_a_functions_digest_survives_the_way_to_a_worker() -> None:
    f = cell(SOURCE)["f"]
    again = cloudpickle.loads(cloudpickle.dumps(f))
    assert digest(again) == digest(f)


@pytest.mark.parametrize("thing", [threading.Lock(), (i for i in "ab"), sys.stdout])
def test_what_has_no_content_says_where_it_is(thing: Any) -> None:
    f = cell("def f():\n    return pool\n", pool=[thing])["f"]
    with pytest.raises(Unhashable, match=r"global pool"):
        digest(f)


def test_digests_are_the_same_in_every_process() -> None:
    code = (
        "import rlkit, numpy as np\nfrom rlkit.runs.digest import digest\n"
        "from rlkit.runs.keys import Run, run_parts, key_of\n"
        "words = {'a', 'b', 'c', 'd'}\n"
        "def f(x, k={1, 2, 3}):\n    return x in {'p', 'q', 'r'} or np.median([x]) in words\n"
        "mine = rlkit.Method('mine', advantage=lambda ctx: ctx.rewards, options={'k': 1})\n"
        "print(digest(f), key_of(run_parts(Run(mine))), key_of(run_parts(Run('mc_grpo', seed=2))))"
    )
    out = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        out.add(done.stdout)
    assert len(out) == 1
    assert len(out.pop().split()) == 3


# What determines a run --------------------------------------------------------------------------------------------


def key(**changes: Any) -> Any:
    return key_of(run_parts(Run(**{"method": "dr_grpo", **changes})))


def test_every_ingredient_changes_the_key() -> None:
    mine = rlkit.Method("mine", advantage=lambda ctx: ctx.rewards)
    other = rlkit.Method("mine", advantage=lambda ctx: -ctx.rewards)
    names = ["dr_grpo", "grpo", mine, other]
    found = [key(method=name) for name in names]
    found += [key(seed=1), key(preset="smoke"), key(task="chain(terms=2)"), key(reward="graded")]
    found += [key(overrides={"learning_rate": 1e-4}), key(overrides={"beta": 0.1})]
    found += [key(reward=lambda completions, **columns: [0.0] * len(completions)), key(model=torch.nn.Linear(2, 2))]
    assert len(set(found)) == len(found)


def test_presets_with_the_same_settings_share_runs() -> None:
    assert key(preset="tiny") == key(preset="full")


def test_a_setting_that_holds_anyway_changes_nothing() -> None:
    assert key(overrides={"max_steps": rlkit.presets.PRESETS["tiny"].settings["max_steps"]}) == key()


def test_an_option_at_its_default_changes_nothing() -> None:
    assert key(method="mc_grpo", overrides={"scale": "none"}) == key(method="mc_grpo")
    assert key(method="mc_grpo", overrides={"scale": "mad"}) != key(method="mc_grpo")


def test_parts_say_which_ingredient_differs() -> None:
    a, b = run_parts(Run("grpo")), run_parts(Run("grpo", seed=1))
    assert [name for name in a if a[name] != b[name]] == ["seed"]


def test_a_model_counts_by_its_files(tmp_path: Path) -> None:
    base = rlkit.paths.bases() / "chain"
    copied = tmp_path / "base"
    shutil.copytree(base, copied)
    assert keys.model_digest(copied) == keys.model_digest("chain")
    (copied / "README.md").write_text("another card", encoding="utf-8")
    assert keys.model_digest(copied) == keys.model_digest("chain")
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    assert keys.model_digest(copied) != keys.model_digest("chain")


# Source files -----------------------------------------------------------------------------------------------------


def test_the_files_of_a_run_are_those_it_executes() -> None:
    rlkit.catalog()
    found = set(keys.run_sources(rlkit.catalog()["mc_grpo"]))
    needed = {
        "rlkit.methods.mc_grpo",
        "rlkit.trainers.rlvr",
        "rlkit.trainers.factory",
        "rlkit.runs.training",
        "rlkit.rewards",
    }
    needed |= {"rlkit.models", "rlkit.method", "rlkit.settings", "rlkit.tasks.base", "rlkit.sampling"}
    assert needed <= found
    assert not found & {"rlkit.methods.replay", "rlkit.plots", "rlkit.show", "rlkit.cli", "rlkit.study", "rlkit.claims"}


@pytest.fixture
def checkout(tmp_path: Path) -> Any:
    """A copy of the package, so that a file can be edited."""
    for name in ("rlkit", "data"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "recorded"))
    return tmp_path


def keys_in(checkout: Path) -> Any:
    code = (
        "from rlkit.runs.keys import Run, run_parts, key_of\n"
        "print(*(key_of(run_parts(Run(name))) for name in ('mc_grpo', 'mean_plus_one', 'dr_grpo')))"
    )
    env = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=checkout, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_an_edited_line_changes_the_keys_of_its_method_and_no_others(checkout: Path) -> None:
    before = keys_in(checkout)
    path = checkout / "rlkit" / "methods" / "mc_grpo.py"
    path.write_text(path.read_text(encoding="utf-8") + "\nUNUSED = 1\n", encoding="utf-8")
    after = keys_in(checkout)
    assert [a != b for a, b in zip(before, after, strict=True)] == [True, True, False]
    rlvr = checkout / "rlkit" / "trainers" / "rlvr.py"
    rlvr.write_text(rlvr.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    assert all(a != b for a, b in zip(after, keys_in(checkout), strict=True))


def test_windows_newlines_change_no_key(checkout: Path) -> None:
    before = keys_in(checkout)
    for path in (checkout / "rlkit").rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for path in (checkout / "data").rglob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert keys_in(checkout) == before


def test_a_users_module_counts_with_what_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_helper.py").write_text("from my_other import k\ndef f(x):\n    return x + k\n", encoding="utf-8")
    (tmp_path / "my_other.py").write_text("k = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    first = sources.sources("my_helper")
    assert set(first) == {"my_helper", "my_other"}
    (tmp_path / "my_other.py").write_text("k = 2\n", encoding="utf-8")
    assert sources.sources("my_helper")["my_other"] != first["my_other"]


def test_installed_packages_count_by_their_version() -> None:
    assert sources.sources("numpy") == {}
    assert np.__version__ in sources.source_digest("numpy")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import rlkit.stats", {"rlkit.stats"}),
        ("from rlkit import stats, claims", {"rlkit", "rlkit.stats", "rlkit.claims"}),
        ("def f():\n    from rlkit.stats import auc", {"rlkit.stats", "rlkit.stats.auc"}),
        ("if TYPE_CHECKING:\n    import rlkit.show\nelse:\n    import rlkit.stats", {"rlkit.stats"}),
        ("from . import b", {"rlkit.methods", "rlkit.methods.b"}),
        ("from ..tasks import chain", {"rlkit.tasks", "rlkit.tasks.chain"}),
        ("import numpy, os, json", set()),
    ],
)
def test_imports_hand_computed(text: str, found: Any) -> None:
    assert set(sources.imports(text.encode(), "rlkit.methods.a", False)) == found


def test_a_package_of_a_site_folder_that_sysconfig_does_not_name_is_installed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's site folder, or one added by a .pth file: walking through all of torch took minutes."""
    for folder in ("site-packages", "mine"):
        (tmp_path / folder).mkdir()
        monkeypatch.syspath_prepend(tmp_path / folder)
    (tmp_path / "site-packages" / "rlkit_test_installed.py").write_text("import json\n", encoding="utf-8")
    (tmp_path / "mine" / "rlkit_test_mine.py").write_text("import json\n", encoding="utf-8")
    sources._search_folders.cache_clear()
    assert sources.file_of("rlkit_test_installed") is None
    assert sources.file_of("rlkit_test_mine") == (tmp_path / "mine" / "rlkit_test_mine.py").resolve()
