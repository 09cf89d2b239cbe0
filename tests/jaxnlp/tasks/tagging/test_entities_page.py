from html.parser import HTMLParser

from jaxnlp.tasks.tagging.entities_page import Entity, render_page


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def test_texts_types_and_names_are_escaped_and_each_type_has_its_colour():
    text = 'A <script>alert(1)</script> & "B"'
    entities = [Entity(2, 10, "<X>", 0.5, text[2:10]), Entity(30, 33, "PER", 0.987, text[30:33])]
    page = render_page([text], [entities], ["PER", "<X>", "LOC"], "<run>")
    reader = Reader()
    reader.feed(page)
    assert "script" not in {tag for tag, _ in reader.tags}
    marks = [attributes for tag, attributes in reader.tags if tag == "mark"]
    assert [mark.get("title") for mark in marks] == [None, None, "<X>, confidence 0.50", "PER, confidence 0.99"]
    assert marks[0]["style"] == marks[3]["style"] != marks[1]["style"] == marks[2]["style"]
    assert 'A <script><X>alert(1)</script> & "B"PER' in reader.text
    assert "LOC" not in reader.text
    assert "Entities found by <run>" in reader.text
    assert "see its confidence" in reader.text


def test_a_page_asks_for_nothing_else():
    page = render_page(["no entity"], [[]], ["PER"], "run")
    assert "no entity" in page
    assert "No entities were found." in page
    assert "confidence" not in page
    assert "://" not in page
    assert "src=" not in page
