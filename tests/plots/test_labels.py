"""Labels: any name on one line, within its width, and unchanged otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from imondrian.plots.labels import fitted_label, text_size
from tests.plots.figure_checks import HOSTILE_NAMES

NAMES = st.text(st.characters(max_codepoint=0x24F) | st.sampled_from("$\\_^{}%"), max_size=40)


@given(name=NAMES, width=st.floats(20, 300), size=st.floats(6, 14))
def test_every_label_fits_and_is_not_empty(name, width, size):
    label = fitted_label(name, width, size)
    assert label
    assert "\n" not in label
    assert text_size(label, size)[0] <= width or label in {"…", "(no name)"}


@given(name=NAMES.filter(lambda name: name.isprintable() and name == " ".join(name.split()) and name))
def test_a_name_that_fits_is_shown_unchanged(name):
    text, is_formula = Text()._preprocess_math(fitted_label(name, 1e9, 10.0))
    assert not is_formula
    assert text == name


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, None, 3.5, ("a", 1)])
def test_the_measured_size_is_not_less_than_the_drawn_one(name):
    label = fitted_label(name, 200.0, 8.0)
    canvas = FigureCanvasAgg(Figure(dpi=150))
    text = canvas.figure.text(0.5, 0.5, label, fontsize=8.0)
    box = text.get_window_extent(canvas.get_renderer())
    width, height = text_size(label, 8.0)
    assert box.width * 72 / 150 <= width + 1.0
    assert box.height * 72 / 150 <= height + 1.0


def test_invisible_names_are_shown_as_no_name():
    assert {fitted_label(name, 100.0, 10.0) for name in ("", "  ", "\x00\x07", "\n")} == {"(no name)"}
