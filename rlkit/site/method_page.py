"""A page per method, from one template: paper, equation, code, settings with their reasons, logs, verdicts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from rlkit.method import Method, catalog
from rlkit.show import notebooks_of
from rlkit.site import parts
from rlkit.site.evidence import Evidence
from rlkit.site.method_file import MethodFile
from rlkit.site.terms import meaning

SEAMS = {
    "data": "which examples, once, before training",
    "sampler": "which prompts are next, and how many rollouts each gets",
    "rollout": "how a rollout is drawn",
    "reward": "what a rollout is worth",
    "advantage": "the baseline or scale, or which rows count",
    "batch": "the rows of a batch",
    "token_weight": "how much each token counts",
    "surrogate": "ratio and clip",
    "divergence": "how far the student is from the teacher, a token",
    "callbacks": "something around the step",
    "state": "memory that survives a resume",
}

BEGINS = re.compile(r"^(What is different here(?:, and why)?\.|Papers?:)", re.MULTILINE)
"""How paragraphs of the files begin; set in bold."""

TEACHERS = {
    "model": "a model of its own",
    "initial": "the starting weights of the student",
    "self": "the student itself, as it is now",
    "none": "none",
}

PAGE = """# {name}

<p class="rl-lead">{summary}</p>

{facts}

## The idea and its equation

**{title}**

{body}

## The code

{code}

## Settings

{settings}

## What it logs

{logs}

## Verdicts

{verdicts}
"""


Sources = Mapping[str, tuple[str, str]]
"""What `rlkit.show.notebook_sources` gives."""


def page(method: Method, file: MethodFile, evidence: Mapping[str, Evidence], sources: Sources) -> str:
    """The Markdown of a method's page."""
    head = parts.front(title=method.name, description=method.summary, hide=["toc"])
    return head + PAGE.format(
        name=method.name,
        summary=Markup.escape(method.summary[:1].upper() + method.summary[1:]),
        facts=_facts(method, file),
        title=parts.prose(file.title),
        body=BEGINS.sub(r"**\1**", parts.prose(file.body)),
        code="\n".join(_code(method, file)),
        settings=_settings(method, file),
        logs=_logs(file),
        verdicts="\n".join(_verdicts(method, evidence, sources)),
    )


def _facts(method: Method, file: MethodFile) -> Markup:
    """Paper, parent, seams and file."""
    at = ", ".join(f"{name}={_shown(value)}" for name, value in (method.reduces_to or {}).items())
    same = (
        Markup("equal at {}").format(parts.code(at))
        if at
        else Markup("no such setting: {}").format(method.no_reduction)
    )
    rows: list[tuple[str, Any]] = [("paper", parts.paper(method.paper) or "none: a control")]
    if method.parent:
        rows.append(
            ("changes", Markup("{}, {}").format(parts.link(parts.code(method.parent), f"{method.parent}.html"), same))
        )
    else:
        rows.append(("changes", method.no_reduction))
    seams = [seam for seam in SEAMS if getattr(method, seam, None)]
    said = Markup("<br>").join(Markup("{}: {}").format(parts.code(seam), SEAMS[seam]) for seam in seams)
    rows.append(("seams", said or "none: settings of the trainer only"))
    if method.pooled:
        rows.append(("pooled", "its numbers are taken over all rows of a step"))
    if method.trainer == "distill":
        rows.append(("teacher", TEACHERS.get(method.teacher, method.teacher)))
    siblings = [m.name for m in file.methods if m.name != method.name]
    own = parts.link(parts.code(f"rlkit/methods/{file.name}.py"), f"../api/methods.html#rlkit.methods.{file.name}")
    beside = Markup(", ").join(parts.link(parts.code(name), f"{name}.html") for name in siblings)
    rows.append(("file", Markup("{}, with {}").format(own, beside) if siblings else own))
    rows.append(("train it", parts.code(f'rlkit.trainer("{method.name}", preset="tiny").train()')))
    lines = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(name, value) for name, value in rows)
    return Markup('<dl class="rl-facts">{}</dl>').format(lines)


def _shown(value: Any) -> str:
    """A value as code; a function of the settings by what it returns."""
    if not callable(value):
        return repr(value)
    source = inspect.getsource(value).strip()
    returned = re.search(r"return (.+)|lambda \w+: (.+?)[,}]", source)
    return (returned[1] or returned[2]) if returned else getattr(value, "__name__", repr(value))


def _code(method: Method, file: MethodFile) -> Iterator[str]:
    """The functions that stand behind the equation."""
    nodes = list(file.functions(method))
    if not nodes:
        yield "No code of its own: it is the settings below, in TRL's trainer."
    for node in nodes:
        yield f"```python\n{file.code(node)}\n```\n"


def _settings(method: Method, file: MethodFile) -> str:
    """TRL options that the method sets and options of its own, each with the reason that its file gives."""
    rows = [(parts.code(n), parts.code(_shown(v)), kind, reason(method, file, n, v)) for n, v, kind in _values(method)]
    if not rows:
        return "None: every setting is the preset's."
    return str(parts.table(("setting", "value", "kind", "what it is, and why"), rows, "rl-settings"))


def _values(method: Method) -> Iterator[tuple[str, Any, str]]:
    yield from ((name, value, "TRL's") for name, value in method.config.items())
    yield from ((name, value, "its own") for name, value in method.options.items())


def reason(method: Method, file: MethodFile, name: str, value: Any) -> Markup:
    """What a setting is, why it has its value, and where it turns the method into its parent.

    Empty where neither the file nor the glossary says anything about it.
    """
    said = file.reason(name)
    pieces = [Markup.escape(meaning(name, value, method.trainer)), inline(said[:1].upper() + said[1:])]
    parent = catalog()[method.parent] if method.parent else None
    if parent and not said and parent.config.get(name, method) == value:
        pieces.append(Markup("As in its parent {}.").format(parts.link(parts.code(parent.name), f"{parent.name}.html")))
    if name in (method.reduces_to or {}):
        at = parts.code(f"{name}={_shown((method.reduces_to or {})[name])}")
        pieces.append(Markup("With {} it is its parent here.").format(at))
    return Markup(" ").join(piece for piece in pieces if piece)


def inline(text: str) -> Markup:
    """A sentence of a docstring as HTML: what stands between backticks is code."""
    pieces = [parts.code(t) if i % 2 else Markup.escape(t) for i, t in enumerate(text.split("`"))]
    return Markup("").join(pieces)


def _logs(file: MethodFile) -> str:
    """Metrics of the file's own."""
    shared = "Beside what [every run logs](../logs.md)"
    if not file.metrics:
        return f"Nothing of its own. {shared.replace('Beside what', 'See what')}."
    rows = [(parts.code(name), inline(what)) for name, what in file.metrics.items()]
    return f"{shared}:\n\n{parts.table(('metric', 'what it is'), rows)}"


def _verdicts(method: Method, evidence: Mapping[str, Evidence], sources: Sources) -> Iterator[str]:
    """The claims of the notebooks that are about the method."""
    found = notebooks_of(method, sources)
    for slug in (slug for slug in found if slug in evidence):
        notebook = evidence[slug]
        yield f"From [{notebook.title}](../notebooks/{slug}.md):\n"
        rows = [parts.claim_row(claim, named=False) for claim in notebook.claims.values()]
        yield f"{parts.table(parts.CLAIM_HEADS, rows, 'rl-ledger')}\n" if rows else "Nothing is recorded yet.\n"
    if not found:
        yield "No notebook makes a claim about it yet."


def index(files: list[MethodFile], evidence: Mapping[str, Evidence], sources: Sources) -> str:
    """The page that lists all methods."""
    rows = []
    for method in (method for file in files for method in file.methods):
        slugs = [slug for slug in notebooks_of(method, sources) if slug in evidence]
        claims = [claim for slug in slugs for claim in evidence[slug].claims.values()]
        name = parts.link(parts.code(method.name), f"{method.name}.html")
        books = Markup(", ").join(parts.link(slug, f"../notebooks/{slug}.html") for slug in slugs)
        rows.append((name, method.summary, parts.paper(method.paper), books, parts.tally(claims)))
    heads = ("method", "what it does", "paper", "notebook", "verdicts")
    text = f"{len(rows)} methods. Each is a setting of a short file of pure functions, plugged into TRL's trainers."
    head = parts.front(title="Methods", hide=["toc"])
    return f"{head}# Methods\n\n{text}\n\n{parts.table(heads, rows, 'rl-catalogue')}\n"
