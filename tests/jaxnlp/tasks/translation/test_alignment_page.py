import re
import xml.etree.ElementTree

from jaxnlp.pages.content import HeatMap
from jaxnlp.tasks.translation.alignment_page import render_page


def test_the_page_has_a_cell_for_each_weight_and_escapes_all_texts():
    found = HeatMap(
        rows=("<a>", "\u2581b"), columns=("x", '"y"', "z"), weights=((0.5, 0.25, 0.25), (0, 1, 0)), title="<i>"
    )
    page = render_page([found, found])
    tree = xml.etree.ElementTree.fromstring(re.sub(r"(<meta [^>]*)>", r"\1/>", page.partition("\n")[2]))
    assert len(tree.findall(".//section")) == 2
    cells = tree.findall(".//section[1]//td")
    assert [cell.get("title") for cell in cells[:2]] == ["x: 0.50", '"y": 0.25']
    assert len(cells) == 6
    assert "\u2581 is the space before a word." in "".join(tree.itertext())
    assert "<a>" not in page
    assert "<i>" not in page
    assert "://" not in page
