"""rlkit.steps.view: a step and a comparison as HTML."""

from __future__ import annotations

import dataclasses
import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.steps.step import Step
from rlkit.steps.view import comparison_html, step_html
from tests.steps.made_up import NASTY, comparison, many, row, step

TAGS = "b bdi details div fieldset i input label legend li p section span strong style summary table tbody td th thead"
KNOWN = {*TAGS.split(), "tr", "ul", "wbr"}
VOID = {"input", "wbr"}


class Page(HTMLParser):
    """What a browser would see: elements, the text outside of style, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.cells: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def tokens(self) -> list[dict[str, str]]:
        """Attributes of the tokens of rollouts; those of the legend have no title."""
        return [a for tag, a in self.elements if tag == "bdi" and "title" in a]

    def buttons(self) -> list[dict[str, str]]:
        return [a for tag, a in self.elements if tag == "input"]


def bars(html: str, name: str) -> list[int]:
    """The length in percent of the bar under each token when the button `name` is chosen, as the style sheet says."""
    page = Page(html)
    target = dict(re.findall(r'<label for="(\w+)">(\w+)</label>', html))
    button = next(key for key, label in target.items() if label == name)
    letter = re.search(rf"#{button}:checked~div \.t{{--v:var\((--\w),0\)", html)
    assert letter, f"no rule draws {name}"
    found, inherited = [], ""
    for tag, attributes in page.elements:
        if tag == "td" and attributes.get("class") == "s":
            inherited = attributes.get("style", "")
        if tag == "bdi" and "title" in attributes:
            lengths = dict(re.findall(r"(--\w):(-?\d+)", f"{inherited};{attributes.get('style', '')}"))
            found.append(int(lengths.get(letter[1], 0)))
    return found


VALUES = {"advantage": [0.5, 0.5, 0.5], "entropy": [0.0, 0.5, 2.0], "ratio": [1.0, 2.0, 0.5], "logp": [0.0, -1.0, -9.0]}
SMALL = step(
    [
        row(["4", " x", "</s>"], VALUES, extras={"gold": "4"}),
        row(["5", "\n", "</s>"], {**VALUES, "advantage": [-1.0] * 3}, advantage=-1.0, reward=0.0),
        row(["6"], {"entropy": [1.0]}, advantage=0.0, counted=False, trained=False, grad_norm=None, reward=None),
        row(["7"], {"entropy": [1.0]}, advantage=0.0, trained=False, age=2),
    ]
)


def test_bars_are_the_values_over_the_largest() -> None:
    html = step_html(SMALL)
    assert bars(html, "advantage") == [50, 50, 50, -100, -100, -100, 0, 0]
    assert bars(html, "entropy") == [0, 25, 100, 0, 25, 100, 50, 50]
    assert bars(html, "ratio") == [0, 100, -100, 0, 100, -100, 0, 0]  # by the logarithm: 2 and 1/2 are equally far


def test_a_bar_that_is_not_zero_is_seen() -> None:
    tiny = step([row(["1", "2", "3"], {"entropy": [10.0, 0.1, 1e-6]})])
    assert bars(step_html(tiny), "entropy") == [100, 6, 0]


def test_equal_ratios_have_no_bar_and_the_legend_says_so() -> None:
    html = step_html(step([row(["1", "2"], {"ratio": [1.0, 1.0 + 1e-7]})]))
    assert bars(html, "ratio") == [0, 0]
    assert "1 at every token, so there is no bar" in Page(html).text


@pytest.mark.parametrize("show", [None, "advantage", "entropy", "logp"])
def test_one_button_is_checked_first(show: str | None) -> None:
    html = step_html(SMALL, show)
    (checked,) = [a["id"] for a in Page(html).buttons() if "checked" in a]
    assert f'<label for="{checked}">{show or "advantage"}</label>' in html
    assert (">logp</label>" in html) == (show == "logp")


def test_what_the_step_does_not_have_cannot_be_shown() -> None:
    with pytest.raises(ValueError, match=r"no 'divergence'.*advantage, ratio, entropy"):
        step_html(SMALL, "divergence")


def test_distillation_shows_the_divergence_first_and_no_rewards() -> None:
    rows = [row(["a"], {"divergence": [0.5], "coefficient": [0.1]}, reward=None)]
    html = step_html(step(rows, trainer="distill", method="opd"))
    assert re.search(r' checked><label for="\w+">divergence', html)
    assert "reward" not in Page(html).text and "advantage" not in Page(html).text


def test_two_outputs_share_no_id() -> None:
    ids = [a["id"] for _ in range(2) for _, a in Page(step_html(SMALL)).elements if "id" in a]
    assert len(ids) == len(set(ids))
    names = {a["name"] for a in Page(step_html(SMALL)).buttons()}
    assert len(names) == 1


def test_every_rule_is_under_the_id_of_its_output() -> None:
    html = step_html(SMALL)
    uid = Page(html).elements[0][1]["id"]
    sheet = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert sheet
    selectors = re.findall(r"([^{}]+)\{", sheet[1])
    assert all(f"#{uid}" in s or s.strip().startswith("@container rlk ") for s in selectors), selectors
    assert all(f"#{uid}" in part for s in selectors if "@" not in s for part in s.split(","))


def test_no_fixed_colour_but_those_of_the_bars() -> None:
    html = step_html(SMALL)
    colours = set(re.findall(r"#[0-9a-f]{6}\b", html))
    assert colours == {"#0173b2", "#d55e00"}
    assert not re.search(r"[ :](white|black|rgb\(|#[0-9a-f]{3}\b)", html.replace("white-space", ""))


def test_buttons_have_labels_and_tables_have_headers() -> None:
    page = Page(step_html(SMALL))
    labelled = {a["for"] for tag, a in page.elements if tag == "label"}
    assert {a["id"] for a in page.buttons()} == labelled
    assert [a["scope"] for tag, a in page.elements if "scope" in a] == ["col"] * 7 + ["row"] * 4 + ["col"] * 2
    assert "script" not in {tag for tag, _ in page.elements}


def test_status_is_said_in_words_and_in_a_pattern() -> None:
    html = step_html(SMALL)
    page = Page(html)
    assert [c for c in page.cells if c[:1] in "✓✂○"] == ["✓ trained", "✓ trained", "✂ taken out", "○ no gradient"]
    assert re.search(r"\.out \.s\{border-left:3px dashed", html) and re.search(
        r"\.still \.s\{border-left:3px dotted", html
    )
    assert "4 rollouts of one prompt: 2 trained, 1 taken out by the method, 1 without a gradient" in page.text
    assert "1 replayed from earlier steps" in page.text and "2 steps old" in page.cells


def test_without_style_the_texts_and_numbers_remain() -> None:
    page = Page(step_html(SMALL))
    assert page.cells[:7] == ["rollout", "reward", "advantage", "gradient", "age", "status", "tokens"]
    assert page.cells[7:14] == ["0", "1", "+0.5", "0.25", "fresh", "✓ trained", "4␣x</s>"]
    assert page.cells[14:21] == ["1", "0", "-1", "0.25", "fresh", "✓ trained", "5↵</s>"]
    assert page.cells[22] == "not scored"
    assert "right answer 4" in page.text and "mean reward 0.667, 1 not scored" in page.text
    assert "loss -0.25, gradient norm 2" in page.text


def test_numbers_are_under_the_pointer() -> None:
    title = Page(step_html(SMALL)).tokens()[1]["title"]
    assert title == "token 2 of 3; probability 0.368; advantage 0.5; ratio 2; entropy 0.5"


def test_end_tokens_are_labels() -> None:
    classes = [a["class"] for a in Page(step_html(SMALL)).tokens()]
    assert classes == ["t", "t", "t e", "t", "t", "t e", "t", "t"]


def test_a_step_of_64_rows_and_16_tokens_is_whole_and_under_300_kb() -> None:
    html = step_html(many(8, 8, 16))
    assert len(html.encode()) < 300_000
    assert len(Page(html).tokens()) == 64 * 16
    assert "5 more prompts" in Page(html).text


@pytest.mark.parametrize(
    ("groups", "size", "length", "token"),
    [(64, 8, 100, "7"), (1, 64, 1000, "7"), (2, 2, 300, "\U000e0001" * 50), (1, 16, 200, '<"' * 40), (300, 1, 1, "7")],
    ids=["long", "one big group", "escapes", "quotes", "many groups"],
)
def test_any_step_stays_under_300_kb(groups: int, size: int, length: int, token: str) -> None:
    html = step_html(many(groups, size, length, token))
    assert len(html.encode()) < 300_000
    assert "not shown" in Page(html).text


def test_what_is_not_shown_is_counted() -> None:
    text = Page(step_html(many(3, 20, 4))).text
    assert "4 more rollouts of this prompt not shown." in text
    long = Page(step_html(many(1, 2, 250)))
    assert "50 tokens not shown" in long.text and len(long.tokens()) == 400
    assert long.tokens()[199]["title"].startswith("token 250 of 250;")  # the end is where the answer is
    assert "28 more groups (28 rollouts) not shown: step.only(groups=[12])" in Page(step_html(many(40, 1, 3))).text


def test_a_completion_of_a_megabyte_does_no_harm() -> None:
    start = time.perf_counter()
    whole = step_html(step([row(["x" * 1_000_000], {"entropy": [1.0]}, prompt="p" * 1_000_000)]))
    cut = step_html(step([row(["ab"] * 500_000, {"entropy": [1.0] * 500_000})]))
    assert max(len(whole), len(cut)) < 60_000
    assert time.perf_counter() - start < 10
    assert "(999,400 more characters)" in Page(whole).text and "499,800 tokens not shown" in Page(cut).text


def test_what_comes_from_models_and_data_is_escaped() -> None:
    rows = [row([NASTY, "\u2067"], {"entropy": [1.0, 2.0]}, prompt=NASTY, extras={"gold": NASTY, NASTY: NASTY})]
    nasty = step(rows, method=NASTY, notes=[NASTY], options={NASTY: NASTY}, metrics={NASTY: 1.0})
    html = step_html(nasty, title=NASTY)
    page = Page(html)
    assert {tag for tag, _ in page.elements} <= KNOWN
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)
    assert r"\x1b[31m\u202eabc\ud800" in page.text and r"\u2067" in page.text
    html.encode()  # a lone surrogate would have no UTF-8


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(), max_size=60), st.lists(st.text(st.characters(), max_size=30), max_size=4))
def test_any_text_gives_whole_html(prompt: str, tokens: list[str]) -> None:
    values = {"entropy": [float(t) for t in range(len(tokens))]}
    html = step_html(step([row(tokens, values, prompt=prompt)], notes=tokens))
    assert {tag for tag, _ in Page(html).elements} <= KNOWN
    html.encode()


def test_numbers_that_are_missing_or_not_finite() -> None:
    nan, inf = float("nan"), float("inf")
    odd = step([row(["1", "2", "3", "4"], {"loss": [nan, inf, -inf, 2.0]}, reward=nan, advantage=nan, grad_norm=nan)])
    assert bars(step_html(odd), "loss") == [0, 100, -100, 100]
    assert "loss unknown" in step_html(odd) and "loss infinite" in step_html(odd)
    saved = Step.from_dict(odd.to_dict())  # there NaN is None
    assert bars(step_html(saved), "loss") == [0, 0, 0, 100]
    assert "no rollout could be scored" in step_html(dataclasses.replace(odd))


@pytest.mark.parametrize("rows", [[], [row([])], [row(["1"])]], ids=["no rows", "no tokens", "no values"])
def test_empty_steps(rows: list) -> None:
    assert "in slow motion" in Page(step_html(step(rows, metrics={}, options={}))).text


def test_several_rewards_are_named() -> None:
    html = step_html(step([row(["1"], rewards={"exact": 1.0, "form<at": 0.5}, reward=1.5)]))
    assert "1.5 (exact\N{NO-BREAK SPACE}1, form<at\N{NO-BREAK SPACE}0.5)" in Page(html).cells


def test_a_comparison_shows_advantages_side_by_side() -> None:
    page = Page(comparison_html(comparison()))
    at = page.cells.index("prompt / rollout")
    assert page.cells[at : at + 6] == ["prompt / rollout", "completion", "reward", "grpo", "other", "signs"]
    assert page.cells[at + 6 : at + 12] == ["0 / 0", "2#2", "1", "+1.5", "-0.5", "differ"]
    assert page.cells[at + 18 : at + 24] == ["0 / 2", "2#2", "0", "-0.75", "(+0.25)", ""]
    assert page.cells[at + 24 : at + 30] == ["0 / 3", "2#2", "1", "+1.5", "", ""]
    assert [a["style"] for tag, a in page.elements if tag == "bdi" and "style" in a][3:5] == ["--a:100", "--a:-33"]
    assert "grpo trains 3 of 4 rollouts (9 tokens)." in page.text
    assert "more likely where another makes it less likely: 1 of 4." in page.text
    assert "other uses the first 3 of each 4 rollouts." in page.text
    assert page.cells[:9] == ["", "grpo", "other", "grpo", "1", "-0.125", "other", "-0.125", "1"]


def test_a_comparison_is_escaped() -> None:
    page = Page(comparison_html(comparison(NASTY)))
    assert {tag for tag, _ in page.elements} <= KNOWN
    comparison_html(comparison(NASTY)).encode()


def test_a_step_of_the_real_trainer() -> None:
    import rlkit

    seen = rlkit.trainer("mc_grpo", preset="tiny", seed=0, max_steps=2).preview()
    html = seen._repr_html_()
    assert len(html.encode()) < 300_000
    assert {tag for tag, _ in Page(html).elements} <= KNOWN
    shown = Page(html)
    assert len(shown.tokens()) > 100 and "✂ taken out" in shown.cells
    pushed = bars(html, "coefficient")
    drawn = [row for row in seen.rows if row.group == seen.rows[0].group]
    signs = [(v > 0) - (v < 0) for r in drawn for v in r.values["coefficient"]]
    assert [(b > 0) - (b < 0) for b in pushed[: len(signs)]] == signs
