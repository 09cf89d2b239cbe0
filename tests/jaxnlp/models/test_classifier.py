import types

import chex
import jax
import pytest

from jaxnlp.models.classifier import ClassifierConfig, matching_heads
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.targets import OneClass
from tests.jaxnlp.models.word_classifier_helpers import VOCABULARY, WORDS, zeros_like


def test_most_classifiers_are_initialised_at_random():
    assert ClassifierConfig().initial_params(None) == {}


def test_a_head_is_taken_only_for_the_same_classes(caplog):
    config = TextCNNConfig(embedding_width=4, feature_maps=2, windows=(2,))
    targets = OneClass(("bad", "good"))
    processor = types.SimpleNamespace(vocabulary_size=VOCABULARY, outputs=2, words=WORDS, targets=targets)
    model = config.build(processor)
    params = jax.jit(model.init)(jax.random.key(0), *map(zeros_like, config.inputs(processor)))["params"]
    trained = types.SimpleNamespace(model=model, params=params, processor=processor, name="earlier")
    found = config.adopt(trained)
    assert found.params.keys() == params.keys() - {"head"}
    assert found.matching_heads(processor) == {"head": params["head"]}
    turned = found.matching_heads(types.SimpleNamespace(targets=OneClass(("good", "bad"))))
    chex.assert_trees_all_equal(turned, {"head": jax.tree.map(lambda x: x[..., ::-1], params["head"])})
    numbered = [types.SimpleNamespace(targets=OneClass(names)) for names in (("0.0", "1.0"), ("0", "1"))]
    same = matching_heads("earlier", numbered[0], {"head": params["head"]}, ("targets",), numbered[1], config)
    chex.assert_trees_all_equal(same, {"head": params["head"]})
    assert not caplog.text
    other = types.SimpleNamespace(targets=OneClass(("a", "z")))  # as many classes, which mean something else
    assert found.matching_heads(other) == {}
    assert "the head of earlier is not used: its targets differ" in caplog.text


def test_several_parts_need_a_model_with_several_heads():
    with pytest.raises(ValueError, match=r"data.parts are sst, sts; give one part"):
        TextCNNConfig().check(types.SimpleNamespace(by_part={"sst": None, "sts": None}, apart=False))
