import pytest

from jaxnlp.models.classifier import ClassifierConfig


def test_a_config_that_describes_no_classifier_says_so():
    with pytest.raises(TypeError, match="ClassifierConfig describes no classifier: it does not define build"):
        ClassifierConfig().build_classifier(None)
    with pytest.raises(TypeError, match="ClassifierConfig describes no classifier: it does not define shapes"):
        ClassifierConfig().shapes(None)


def test_most_classifiers_are_initialised_at_random():
    assert ClassifierConfig().initial_params(None) == {}
