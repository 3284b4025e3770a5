"""What every picture must hold, whatever it shows: shared by the tests of the modules that draw."""

import matplotlib as mpl

from helpers.picture import Picture


def assert_it_describes_itself(draw):
    """Its description is the same before and after a draw, and a second picture has the same bytes."""
    picture = draw()
    assert isinstance(picture, Picture)
    before = picture.describe()
    assert picture.png() == picture.png() == draw().png()
    assert picture.describe() == before


def assert_no_setting_stays_changed(draw):
    """Matplotlib's settings are as they were."""
    before = dict(mpl.rcParams)
    draw()
    assert dict(mpl.rcParams) == before


def assert_words_are_large_and_within(frame, texts):
    """Words can be read from the last row, and none is cut off."""
    for text in texts:
        assert text.get_fontsize() >= 13
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1, text.get_text()
        assert frame.y0 <= box.y0 <= box.y1 <= frame.y1, text.get_text()
