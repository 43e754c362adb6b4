from __future__ import annotations

from typing import Any

import pytest

import rlkit
from rlkit.widgets import Slider, slider

VALUES = {2: 0.3, 4: 0.2, 8: 0.1}


def draw(panel: Any, value: int) -> None:
    panel.barh(["mean"], [VALUES[value]])


@pytest.fixture
def chosen() -> Slider:
    return slider(draw, "group size G", list(VALUES), title="Signs", note="64 prompts.")


def test_the_static_picture_has_every_value_on_the_same_axes(chosen: Slider) -> None:
    figure = chosen.figure()
    assert [panel.get_title(loc="left") for panel in figure.axes] == [f"group size G = {G}" for G in VALUES]
    assert [panel.patches[0].get_width() for panel in figure.axes] == list(VALUES.values())
    assert len({panel.get_xlim() for panel in figure.axes}) == 1
    assert "64 prompts." in " ".join(text.get_text() for text in figure.texts)


def test_moving_the_slider_changes_the_picture(chosen: Slider) -> None:
    handle, picture = chosen.box().children
    seen = [bytes(picture.value)]
    for value in ("4", "8", "2"):
        handle.value = value
        seen.append(bytes(picture.value))
    assert seen[0] == seen[3]
    assert len(set(seen)) == 3
    assert all(png.startswith(b"\x89PNG") for png in seen)


def test_a_notebook_that_a_program_executes_gets_the_picture_only(
    chosen: Slider, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("IPython.display.display", lambda thing: shown.append(type(thing).__name__))
    monkeypatch.setenv("RLKIT_STRICT_CHECKS", "1")
    chosen._ipython_display_()
    assert shown == ["Picture"]
    monkeypatch.delenv("RLKIT_STRICT_CHECKS")
    chosen._ipython_display_()
    assert shown == ["Picture", "VBox", "Picture"]


def test_nothing_to_choose_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        slider(draw, "G", [])
    assert rlkit.widgets.slider is slider
    assert "G = 2" in repr(slider(draw, "G", [2]))
