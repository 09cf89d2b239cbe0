import numpy as np

from jaxnlp.tasks.classification.rollout_page import DARKEST, lit, render_page, side_by_side

IMAGES = np.full((2, 4, 4, 3), 200, np.uint8)
SHARES = np.array([[[0.4, 0.2], [0.2, 0.2]], [[0.0, 0.5], [0.5, 0.0]]])


def test_a_patch_is_as_bright_as_its_share_of_the_largest():
    found = lit(IMAGES, SHARES)
    assert found[0, :2, :2].tolist() == [[[200] * 3] * 2] * 2
    assert (found[0, 2:, 2:] == round(200 * (DARKEST + (1 - DARKEST) * 0.5))).all()
    assert (found[1, :2, :2] == round(200 * DARKEST)).all()
    np.testing.assert_array_equal(side_by_side(IMAGES, SHARES)[[1, 3]], found)
    np.testing.assert_array_equal(side_by_side(IMAGES, SHARES)[[0, 2]], IMAGES)


def test_the_page_shows_each_image_and_escapes_its_caption():
    page = render_page(IMAGES, SHARES, ["<b>.png: cat", "two"], "a & b")
    assert page.count("<img ") == 2
    assert "&lt;b&gt;.png: cat" in page
    assert "Attention of a &amp; b" in page
    assert "://" not in page
