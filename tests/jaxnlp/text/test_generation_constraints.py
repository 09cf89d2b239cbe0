import json

import pytest

from jaxnlp.text.generation_constraints import UNCONSTRAINED, GenerationConstraints


@pytest.mark.parametrize("constraints", [UNCONSTRAINED, GenerationConstraints(0, True, (3, 5), 2, True)])
def test_they_read_back_from_the_json_of_runs(constraints):
    fields = json.loads(json.dumps(constraints.to_json()))
    assert fields.keys() == {"forced_first", "forced_end", "never", "least", "renormalised"}
    assert GenerationConstraints.from_json(fields) == constraints
    assert hash(GenerationConstraints.from_json(fields)) == hash(constraints)


def test_earlier_runs_have_no_minimum_length():
    expected = GenerationConstraints(forced_eos=True, suppressed_tokens=(4,))
    assert GenerationConstraints.from_json({"forced_end": True, "never": [4]}) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forced_first": "0"}, "forced_first: expected the id of a token or null"),
        ({"forced_end": None}, "forced_end is missing"),
        ({"never": ["a"]}, "never: expected the ids of tokens"),
        ({"least": -1}, "expected a number as least"),
        ({"renormalised": 1}, "true or false as renormalised"),
    ],
)
def test_wrong_fields_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        GenerationConstraints.from_json(UNCONSTRAINED.to_json() | changes)
