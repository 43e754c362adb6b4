"""`rlkit site`: everything there is to read, as static pages in `build/site`.

Nothing is executed: notebooks are shown as the last run left them (else with their recorded figures), methods as their
files describe them. Pages are written as Markdown to `build/site_source`, and MkDocs makes HTML of them, which reads
from a disk as well as from a server and loads nothing from elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlkit import paths
from rlkit.show import notebook_sources
from rlkit.site import gallery, guides, method_page, notebook_page, reference
from rlkit.site.evidence import Evidence, gather
from rlkit.site.hook import OUTPUTS
from rlkit.site.method_file import MethodFile, files

HERE = Path(__file__).resolve().parent
NEEDED = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers", "latex2mathml")


@dataclass(frozen=True)
class Built:
    """What `build` made."""

    folder: Path
    pages: int
    size: int
    """Bytes."""


def build(folder: Path | None = None) -> Built:
    """Write the site.

    Args:
        folder: where to; `build/site` by default. What is there is replaced.

    Raises:
        ModuleNotFoundError: the generator is not installed.
        ValueError: the pages could not be made; the message is the generator's.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"The site needs {', '.join(missing)}: python -m pip install 'rlkit-lab[site]'.")
    target = (folder or paths.build() / "site").resolve()
    source = paths.build() / "site_source"
    shutil.rmtree(source, ignore_errors=True)
    write_sources(source)
    _generate(source, target)
    for path in target.glob("assets/javascripts/**/*.map"):
        path.unlink()  # for those who debug the theme
    shutil.rmtree(target / "assets" / "javascripts" / "lunr")  # other languages
    made = [path for path in target.rglob("*") if path.is_file()]
    return Built(target, sum(path.suffix == ".html" for path in made), sum(path.stat().st_size for path in made))


def write_sources(source: Path) -> None:
    """Write what the generator reads: pages, pictures, the style, the settings, the outputs of notebooks."""
    docs = source / "docs"
    docs.mkdir(parents=True)
    evidence, methods = gather(), files()
    outputs = _notebooks(docs, evidence)
    _recorded(docs, evidence)
    pages = _pages(evidence, methods)
    texts = guides.guides(paths.source())
    readme = texts.get("guide/start.md", ("", ""))[1]
    pages |= {place: text for place, (_, text) in texts.items()} | {"logs.md": guides.logs(readme)}
    for place, text in pages.items():
        path = docs / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _lead_links(docs)
    (source / OUTPUTS).write_text(json.dumps(outputs), encoding="utf-8")
    shutil.copytree(HERE / "theme", source / "theme")
    shutil.copytree(HERE / "theme" / "images", docs / "images")
    shutil.copyfile(HERE / "hook.py", source / "hook.py")
    settings = yaml.safe_load((HERE / "mkdocs.yml").read_text(encoding="utf-8"))
    (source / "mkdocs.yml").write_text(yaml.safe_dump(_filled(settings, evidence, methods, texts)), encoding="utf-8")


def _notebooks(docs: Path, evidence: Mapping[str, Evidence]) -> dict[str, list[str]]:
    """The pages of the notebooks; gives their outputs by page."""
    made = {slug: notebook_page.page(notebook) for slug, notebook in evidence.items()}
    return {f"notebooks/{slug}.md": notebook_page.write(page, docs / "notebooks") for slug, page in made.items()}


def _recorded(docs: Path, evidence: Mapping[str, Evidence]) -> None:
    """The committed figures, for gallery and README; those of a run where nothing is recorded yet."""
    for slug, notebook in evidence.items():
        folder = docs / "notebooks" / "images" / "recorded" / slug
        folder.mkdir(parents=True, exist_ok=True)
        for picture in (notebook.committed or notebook.pictures).values():
            shutil.copyfile(picture.path, folder / picture.path.name)


def _pages(evidence: Mapping[str, Evidence], methods: list[MethodFile]) -> dict[str, str]:
    """All pages that are generated from code and claims."""
    pages = {
        "index.md": gallery.front_page(evidence, "notebooks/images/recorded"),
        "claims.md": gallery.ledger(evidence),
    }
    sources = notebook_sources()
    pages["methods/index.md"] = method_page.index(methods, evidence, sources)
    for file in methods:
        for method in file.methods:
            pages[f"methods/{method.name}.md"] = method_page.page(method, file, evidence, sources)
    pages["api/index.md"] = reference.surface()
    return pages | {f"api/{name}.md": reference.room(name, members) for name, members in reference.modules().items()}


def _lead_links(docs: Path) -> None:
    """Links to files of the repository become links to pages."""
    for path in [*docs.glob("guide/*.md"), *docs.glob("notebooks/*.md"), docs / "logs.md"]:
        page = path.relative_to(docs).as_posix()
        text = path.read_text(encoding="utf-8")
        path.write_text(guides.relink(text, page, lambda place: (docs / place).is_file()), encoding="utf-8")


def _filled(
    settings: dict[str, Any], evidence: Mapping[str, Evidence], methods: list[MethodFile], texts: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings with the navigation, and with the place where the package's source is."""
    named = sorted(method.name for file in methods for method in file.methods)
    nav: list[Any] = [{"Gallery": "index.md"}]
    nav += [{"Notebooks": [{notebook.title: f"notebooks/{slug}.md"} for slug, notebook in evidence.items()]}]
    nav += [{"Methods": ["methods/index.md", *({name: f"methods/{name}.md"} for name in named)]}]
    nav += [{"Claims": "claims.md"}]
    nav += [{"Guide": [*({title: place} for place, (title, _) in texts.items()), {"Logs": "logs.md"}]}]
    nav += [{"API": ["api/index.md", *({f"rlkit.{name}": f"api/{name}.md"} for name in reference.modules())]}]
    for plugin in settings["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(reference.PACKAGE.parent)]
    return settings | {"nav": nav}


def _generate(source: Path, target: Path) -> None:
    """Run MkDocs.

    Raises:
        ValueError: with its messages.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    command += ["--config-file", str(source / "mkdocs.yml"), "--site-dir", str(target)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"The site could not be built:\n{(done.stderr or done.stdout).strip()[-4000:]}")
