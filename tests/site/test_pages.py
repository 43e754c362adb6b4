"""What goes onto the pages: text, code, outputs, settings with reasons. Nothing is generated here but Markdown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import nbformat.v4 as v4
import pytest

from rlkit import paths
from rlkit.method import catalog
from rlkit.site import evidence, gallery, guides, hook, method_page, notebook_page, parts, reference
from rlkit.site.evidence import Evidence, Picture
from rlkit.site.method_file import MethodFile, files

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CLAIM = {
    "id": "faster",
    "statement": "It is <faster> & better",
    "endpoint": "seconds",
    "op": "<",
    "threshold": 0.0,
    "unit": "s",
    "estimate": -1.234567,
    "interval": [-2.0, -0.5],
    "seeds": 5,
    "n": 5,
    "expected": "refuted",
    "verdict": "supported",
    "controls": [],
    "note": "",
}


@pytest.fixture(scope="module")
def method_files() -> dict[str, MethodFile]:
    return {file.name: file for file in files()}


def page_of(*cells, executed=True, **more) -> notebook_page.Page:
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# A title\n\nWhat *it* asks."), *cells])
    return notebook_page.page(Evidence("demo", notebook, notebook if executed else None, **more))


def code(source: str, *outputs, count: int | None = 1):
    return v4.new_code_cell(source, outputs=list(outputs), execution_count=count)


# Notebooks


def test_an_output_is_put_into_its_place_unread() -> None:
    html = "<table>\n\n<tr><td>*not emphasis*</td></tr>\n\n</table>"
    page = page_of(code("frame", v4.new_output("execute_result", {"text/html": html, "text/plain": "no"})))
    assert html in page.outputs
    assert f'data-place="{page.outputs.index(html)}"' in "\n".join(page.lines)


def test_progress_and_warnings_are_left_out_and_prints_are_escaped() -> None:
    page = page_of(
        code("x", v4.new_output("stream", name="stderr", text="FutureWarning"), v4.new_output("stream", text="a<b"))
    )
    assert "FutureWarning" not in "".join(page.outputs)
    assert "a&lt;b" in "".join(page.outputs)


def test_a_picture_is_described_by_its_own_title_else_by_the_heading_above(tmp_path) -> None:
    (tmp_path / "curve.svg").write_text("<svg><title>It &amp; more</title></svg>", encoding="utf-8")
    known = evidence.pictures(tmp_path, {"curve": ()})
    picture = v4.new_output("display_data", {"image/png": PNG})
    named = page_of(code('study.figure("curve", plot)', picture), pictures=known)
    other = page_of(v4.new_markdown_cell("## Heat"), code("plot", picture))
    assert 'alt="Figure: It &amp; more"' in named.outputs[-1] and "curve.svg" in named.files
    assert "in the section Heat" in other.outputs[-1] and other.files["cell2_0.png"].startswith(b"\x89PNG")


def test_what_was_not_run_shows_the_recorded_figure_and_verdicts(tmp_path) -> None:
    (tmp_path / "curve.svg").write_text("<svg><title>Faster</title></svg>", encoding="utf-8")
    known = evidence.pictures(tmp_path, {})
    page = page_of(
        code('study.figure("curve", f)', count=None),
        code("study.judge(CLAIMS, values)", count=None),
        executed=False,
        pictures=known,
        committed=known,
        claims={"faster": CLAIM},
    )
    assert 'alt="Figure: Faster"' in page.outputs[1]
    assert "It is &lt;faster&gt; &amp; better" in page.outputs[2] and "✔ supported" in page.outputs[2]
    assert "recorded" in page.outputs[0]


def test_a_solution_is_folded_away_from_its_exercise() -> None:
    source = "def f(x):\n    ### BEGIN SOLUTION\n    return x + 1\n    ### END SOLUTION\n\n\nrlkit.check('a.f', f)"
    shown, solution = notebook_page.blanked(source)
    assert shown == "def f(x):\n    ...  # your turn\n\n\nrlkit.check('a.f', f)"
    assert solution == "return x + 1"
    text = "\n".join(page_of(code(source)).lines)
    assert text.index("your turn") < text.index('"A solution"') < text.index("return x + 1")


def test_backticks_in_code_do_not_end_the_code() -> None:
    assert notebook_page._fence('x = "```"')[0] == "````python"


def run_of(folder: Path, preset: str, notebook, changes) -> Path:
    import nbformat

    copy = nbformat.from_dict(notebook)
    for cell in copy.cells:
        cell.update(changes)
    path = folder / "build" / "executed" / preset / "demo.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(copy, path)
    return path


@pytest.mark.parametrize(
    ("preset", "changes", "shown"),
    [
        ("tiny", {}, True),
        ("smoke", {}, False),
        ("tiny", {"source": "another"}, False),
        ("tiny", {"execution_count": None}, False),
        ("tiny", {"outputs": [v4.new_output("error", ename="E", evalue="", traceback=[])]}, False),
    ],
    ids=["complete", "smoke", "other code", "broken off", "failed"],
)
def test_only_a_complete_run_of_these_cells_is_shown(tmp_path, monkeypatch, preset, changes, shown) -> None:
    monkeypatch.setenv("RLKIT_ROOT", str(tmp_path))
    source = v4.new_notebook(cells=[code("x = 1")])
    run_of(tmp_path, preset, source, changes)
    assert (evidence._evidence("demo", source).executed is not None) is shown


def test_a_figure_knows_the_claims_that_its_title_is_computed_from() -> None:
    source = 'study.figure("curve", plot(title=title("faster", supported="Yes")))\nstudy.figure("other", plot)'
    assert dict(evidence.cell_figures(source, ("faster", "else"))) == {"curve": ("faster",), "other": ()}


# Methods


def test_every_method_has_a_page_with_all_parts(method_files) -> None:
    for file in method_files.values():
        for method in file.methods:
            text = method_page.page(method, file, {}, {})
            for part in ("The idea and its equation", "The code", "Settings", "What it logs", "Verdicts"):
                assert f"## {part}" in text, method.name
            assert not method.paper or f"https://arxiv.org/abs/{method.paper}" in text


def test_every_value_of_a_method_has_a_reason(method_files) -> None:
    """Where one has none: name it in the docstring of its file, or put a comment behind the value."""
    bare = [
        f"{method.name}: {name}"
        for file in method_files.values()
        for method in file.methods
        for name, value, _ in method_page._values(method)
        if not method_page.reason(method, file, name, value)
    ]
    assert bare == []


def test_the_equation_is_the_first_indented_block(method_files) -> None:
    assert method_files["mc_grpo"].equation.startswith("A_i = (r_i - m) / (MAD + eps)")
    assert method_files["luffy"].equation.count("\n") == 2


def test_a_reason_is_taken_from_the_comment_then_the_sentence_that_names_the_option(tmp_path, method_files) -> None:
    vade, olr = method_files["vade"], method_files["olr"]
    assert vade.reason("gain") == '`gain="p(1-p)"` is the symmetric control.'
    assert "`start` counts visits" in olr.reason("start")
    assert method_files["rlep"].reason("draw") == method_files["group_replay"].reason("draw") != ""
    assert vade.reason("no_such_option") == ""


def test_a_metric_is_explained_by_the_sentence_that_names_it(method_files) -> None:
    assert method_files["vade"].metrics["vade/oldest"].startswith("`vade/oldest` logs how many steps ago")
    assert method_files["vcpo"].metrics["vcpo/step_factor"] == "`self.factor`"


def test_the_code_of_a_method_is_its_hooks_and_what_they_call(method_files) -> None:
    names = [node.name for node in method_files["mc_grpo"].functions(catalog()["mc_grpo"])]
    assert names == ["median_pivot", "_divisor", "_mc_grpo"]
    names = [node.name for node in method_files["olr"].functions(catalog()["olr"])]
    assert "Labels" in names and "plurality" in names


def test_a_value_that_is_a_function_is_shown_as_what_it_returns(method_files) -> None:
    shown = method_page._shown(catalog()["mc_grpo"].config["num_generations"])
    assert shown == 'settings["num_generations"] + settings["extra"]'
    assert method_page._shown("none") == "'none'"


# Front page and ledger


def demo(**more) -> Evidence:
    source = v4.new_notebook(
        cells=[v4.new_markdown_cell("# A *title*\n\nG: [arXiv 1](x) · run it\n\nOne **thing**. Two things.")]
    )
    pictures = {"curve": Picture("curve", Path("curve.svg"), 'Says "yes"', ("faster",))}
    return dataclasses.replace(Evidence("demo", source, committed=pictures, claims={"faster": CLAIM}), **more)


def test_the_front_page_shows_figures_with_verdicts() -> None:
    text = gallery.front_page({"demo": demo()}, "images")
    assert 'src="images/demo/curve.svg" alt="Figure: Says &#34;yes&#34;"' in text
    assert "claims.html#demo--faster" in text and "✔ supported" in text and "It is &lt;faster&gt;" in text
    assert '<p class="rl-asks">One thing. Two things.</p>' in text


def test_the_ledger_counts_the_guesses_that_were_right() -> None:
    right = {**CLAIM, "id": "b", "expected": "supported"}
    text = gallery.ledger({"demo": demo(claims={"faster": CLAIM, "b": right})})
    assert "2 claims in all; the guess was right for 1" in text
    assert 'id="demo--b"' in text and "-1.23<br>[-2, -0.5]" in text


def test_a_verdict_says_itself_in_a_word_and_a_sign() -> None:
    signs = {parts.verdict(word).split(">")[1].split(" ")[0] for word in ("supported", "refuted", "inconclusive")}
    assert len(signs) == 3
    assert "preliminary refuted" in parts.verdict("preliminary refuted") and "rl-refuted" in parts.verdict(
        "preliminary refuted"
    )


# Texts


def test_signs_of_a_docstring_are_no_markup_and_papers_become_links() -> None:
    text = parts.prose("Of r_1..r_G * 2 and `a_b*`, a < b; arXiv 2601.22582:\n\n    A_i = r_i\n    B = 2\n\nEnd_of.")
    assert r"r\_1..r\_G \* 2 and `a_b*`, a &lt; b" in text
    assert "[arXiv 2601.22582](https://arxiv.org/abs/2601.22582)" in text
    assert "``` { .text .rl-equation }\nA_i = r_i\nB = 2\n```" in text and text.endswith(r"End\_of.")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a](notebooks/02_median_baseline.ipynb)", "[a](../notebooks/median_baseline.md)"),
        ("[a](../figures/median_baseline/claims.json)", "[a](../claims.md#median_baseline)"),
        ("[`a`](rlkit/methods/grpo.py)", "[`a`](../api/methods.md#rlkit.methods.grpo)"),
        ("[a](CONTRIBUTING.md#style)", "[a](../guide/contributing.md#style)"),
        ("![a](figures/x/y.svg)", "![a](../notebooks/images/recorded/x/y.svg)"),
        ("[a](LICENSE)", "a"),
        ("[a](https://example.org/x)", "[a](https://example.org/x)"),
        ("[a](#below)", "[a](#below)"),
    ],
    ids=["notebook", "claims", "method", "guide", "figure", "no page", "web", "anchor"],
)
def test_links_to_files_lead_to_pages(text, shown) -> None:
    assert guides.relink(text, "guide/start.md", lambda place: True) == shown


def test_a_link_to_a_page_that_is_not_there_becomes_text() -> None:
    assert guides.relink("[a](notebooks/99_none.ipynb)", "guide/start.md", lambda place: False) == "a"


def test_formulas_become_mathml_and_unknown_commands_are_refused() -> None:
    made = hook.formula(r"A_i = \operatorname{median}(r)", block=True)
    assert 'display="block"' in made and "<mi>median</mi>" in made
    with pytest.raises(ValueError, match=r"No MathML for \\nosuch"):
        hook.formula(r"\nosuch{x}", block=False)


def test_the_reference_knows_every_public_name_and_file() -> None:
    import ast

    import rlkit

    names = reference.public()
    assert set(names) <= set(rlkit.__all__) and {"trainer", "run", "Step"} <= set(names)
    for name, place in names.items():
        path = reference.PACKAGE.joinpath(*place.split(".")[1:-1]).with_suffix(".py")
        assert name in [getattr(node, "name", "") for node in ast.parse(path.read_text(encoding="utf-8")).body]
    files = [file for members in reference.modules().values() for file in members]
    assert "rlkit.methods.mc_grpo" in files and "rlkit.stats" in files and len(files) == len(set(files))


def test_the_logs_page_is_the_section_of_the_readme() -> None:
    text = guides.logs((paths.source() / "README.md").read_text(encoding="utf-8"))
    assert "`grad_norm`" in text and "## Add a method" not in text
