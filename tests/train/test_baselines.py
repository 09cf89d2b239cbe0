import re

import pytest

from data.invented_people import invent, write
from data.names import NamesQuestions
from train import baselines

PEOPLE = invent(3, train=40, dev=12, test=2)


@pytest.fixture
def arguments(tmp_path):
    write(PEOPLE, tmp_path)
    return ["london", "--data.path", str(tmp_path), "--data.held-out", "0"]


def share(place):
    return sum(answer == place for _, answer in PEOPLE.dev) / len(PEOPLE.dev)


def test_one_place_is_right_for_those_who_were_born_there(arguments, capsys):
    place = PEOPLE.dev[0][1]
    assert baselines.main([*arguments, "--place", place]) == 0
    assert capsys.readouterr().out == (
        f"dev exact_match {share(place):.4f}  (12 questions, each answered with {place!r})\n"
    )


def test_the_most_frequent_place_of_training_is_taken_where_none_is_given(arguments):
    command = baselines.London(NamesQuestions(path=arguments[2], held_out=0), place=None)
    places = [answer for _, answer in PEOPLE.train]
    place = max(places, key=places.count)
    assert baselines.london(command) == (place, share(place), 12)


def test_nobody_is_born_in_london_here(arguments, capsys):
    assert baselines.main(arguments) == 0
    assert "dev exact_match 0.0000" in capsys.readouterr().out


def test_missing_data_is_told_in_one_line(capsys, tmp_path):
    assert baselines.main(["london", "--data.path", str(tmp_path / "nowhere")]) == 2
    assert re.fullmatch(r"error: no folder .*nowhere; give --data\.path .*\n", capsys.readouterr().err)


@pytest.mark.realdata
def test_london_is_right_for_one_dev_question_in_twenty():
    assert baselines.london(baselines.London()) == ("London", 0.05, 500)
