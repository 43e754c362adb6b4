"""Every Python example of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_readme_has_examples():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLKIT_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    exec(compile(EXAMPLES[number], f"README.md, example {number + 1}", "exec"), {"__name__": "__main__"})
