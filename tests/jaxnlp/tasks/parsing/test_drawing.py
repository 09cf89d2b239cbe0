import re
import xml.etree.ElementTree

from data.small_grammar import grammar_sentences
from jaxnlp.tasks.parsing.drawing import Drawn, arc_levels, as_html, as_svg, as_text
from jaxnlp.tasks.parsing.scores import Tree

WORDS = ["She", "sees", "the", "<b>", "&", "old", "dog"]
TREE = Tree([2, 0, 4, 2, 7, 7, 4], ["nsubj", "root", "det", "obj", "cc", "amod", "conj"])


def test_a_tree_as_text_has_each_word_below_its_head():
    assert as_text(WORDS, TREE) == (
        "sees  root 2\n"
        "├─ She  nsubj 1\n"
        "└─ <b>  obj 4\n"
        "   ├─ the  det 3\n"
        "   └─ dog  conj 7\n"
        "      ├─ &  cc 5\n"
        "      └─ old  amod 6\n"
    )


def test_a_chain_of_many_words_is_written_without_recursion():
    n = 3_000
    lines = as_text(["w"] * n, Tree(range(n), ["root"] + ["dep"] * (n - 1))).splitlines()
    assert len(lines) == n
    assert lines[-1].endswith("w  dep 3000")


def test_an_arc_is_above_all_arcs_between_its_ends():
    for sentence in grammar_sentences(50, seed=0):
        levels = arc_levels(sentence.heads)
        ends = [(min(word, head), max(word, head)) for word, head in enumerate(sentence.heads, 1)]
        for (left, right), level, head in zip(ends, levels, sentence.heads, strict=True):
            assert (level == 0) == (head == 0)
            inside = [
                other
                for (a, b), other in zip(ends, levels, strict=True)
                if left <= a < b <= right and (a, b) != (left, right)
            ]
            if head:
                assert all(other < level for other in inside)


def pieces(picture):
    """The horizontal and vertical lines of arcs as (x1, y1, x2, y2), and the boxes of labels."""
    root = xml.etree.ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    lines, boxes = [], []
    for path in root.iter(f"{space}path"):
        if path.get("class") == "tip":
            continue
        numbers = list(map(float, re.findall(r"-?[\d.]+", path.get("d"))))
        if "H" in path.get("d"):
            x1, base, _, _, height, _, _, _, x2, *_ = numbers
            lines += [(x1, height, x1, base), (x1, height, x2, height), (x2, height, x2, base)]
        else:
            x, top, bottom = numbers
            lines.append((x, top, x, bottom))
    for rect in root.iter(f"{space}rect"):
        if rect.get("fill") is None:
            boxes.append([float(rect.get(name)) for name in ("x", "y", "width", "height")])
    return lines, boxes


def own_line(box, line):
    """Whether the label is on this line: the middle of the line is that of the box."""
    x, y, width, height = box
    x1, y1, x2, y2 = line
    on = abs((y1 + y2) / 2 - y - height / 2) < 0.2 if y1 == y2 else abs(y1 - y - height / 2) < 0.2
    return on and abs((x1 + x2) / 2 - x - width / 2) < 0.2


def test_no_arc_of_a_projective_tree_crosses_a_label_or_another_arc():
    for sentence in grammar_sentences(40, seed=1):
        one = Drawn("1", sentence.words, sentence.tags, Tree(sentence.heads, sentence.relations))
        lines, boxes = pieces(as_svg([one]))
        assert len(boxes) == len(sentence.words)
        for x, y, width, height in boxes:
            crossing = [
                line
                for line in lines
                if min(line[0], line[2]) < x + width
                and max(line[0], line[2]) > x
                and min(line[1], line[3]) < y + height
                and max(line[1], line[3]) > y
                and not own_line((x, y, width, height), line)
            ]
            assert not crossing, sentence.words
        vertical = [line for line in lines if line[0] == line[2]]
        horizontal = [line for line in lines if line[1] == line[3]]
        for x1, y, x2, _ in horizontal:
            for x, top, _, bottom in vertical:
                inside = (
                    min(x1, x2) + 0.5 < x < max(x1, x2) - 0.5 and min(top, bottom) + 0.5 < y < max(top, bottom) - 0.5
                )
                assert not inside, sentence.words


def test_words_do_not_overlap_and_fit_into_the_picture():
    words = ["a", "averyveryverylongwordindeed", "日本語の文", "b"]
    picture = as_svg([Drawn("1", words, (), Tree([2, 0, 2, 2], ["nmod:averylongrelation", "root", "x", "y"]))])
    root = xml.etree.ElementTree.fromstring(picture)
    texts = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("class") is None]
    middles = [float(text.get("x")) for text in texts]
    half = [4.0 * sum(2 if ord(one) > 0x2E7F else 1 for one in word) for word in words]
    assert [text.text for text in texts] == words
    assert all(b - a > x + y for a, b, x, y in zip(middles, middles[1:], half, half[1:], strict=False))
    assert middles[0] - half[0] > 0
    assert middles[-1] + half[-1] < float(root.get("width"))
    assert middles[1] - middles[0] > 22 * 6.6  # as wide as the label between them


def test_texts_are_escaped_and_a_page_scrolls_each_sentence():
    one = Drawn("s<1>", WORDS, ("X",) * 7, TREE)
    page = as_html([one, one], "a & b")
    assert page.count('<div class="scroll">') == 2
    assert "<b>" not in page
    assert "Trees of a &amp; b" in page
    assert "from the head to the dependent" in page
    assert "s&lt;1&gt;. She sees the &lt;b&gt;" in page
    assert xml.etree.ElementTree.fromstring(as_svg([one])) is not None


def test_trees_that_are_not_projective_are_drawn_with_a_level_for_each_crossing_arc():
    levels = arc_levels([3, 4, 0, 3])
    assert levels[0] != levels[1]
    lines, boxes = pieces(as_svg([Drawn("1", "abcd", (), Tree([3, 4, 0, 3], "wxyz"))]))
    assert len(boxes) == 4
    heights = {y for x1, y, x2, other in lines if y == other}
    assert len(heights) == 2
