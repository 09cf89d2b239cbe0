from data.invented_people import invent
from data.invented_questions import about_people


def test_invented_questions_have_their_answer_in_the_context_and_unseen_places_in_validation():
    people = invent(0, train=30, dev=10)
    train, validation = about_people(people, "train", seed=0), about_people(people, "validation", seed=1)
    assert (len(train), len(validation)) == (120, 40)
    places = []
    for questions in (train, validation):
        assert sum(not one.answers for one in questions) == len(questions) / 4
        for one in questions:
            name = one.question.removeprefix("Where was ").removesuffix(" born?")
            assert name in one.context
            for span in one.answers:
                assert one.context[span.start : span.stop] == span.text
        places.append({span.text for one in questions for span in one.answers})
    assert not places[0] & places[1]
    assert about_people(people, "train", seed=0) == train
