"""Small trained models of texts, in memory: of four parts, and classifiers."""

from collections.abc import Callable, Iterator

import jax
import pytest

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.targets import Classes, Scale, Targets
from jaxnlp.tasks import Trained
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.text_tasks import TextTasks
from jaxnlp.text.classifier_processor import PairReading, TextClassifierProcessor
from jaxnlp.text.labels import Labels
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.jaxnlp.tasks.two_devices import two_devices
from tests.random_parameters import random_parameters

LABELS = {
    "sst": Labels("classification", 1, ("0", "1", "2", "3", "4")),
    "reviews": Labels("classification", 1, ("negative", "positive")),
    "quora": Labels("paraphrase", 2, ("0", "1")),
    "sts": Labels("similarity", 2, highest=5.0),
}
WORDS = ["the", "cat", "sat", "##s", "on", "mat", "dog", "ate", "a", "big", "fish", "."]

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
ENCODER = BertConfig(num_layers=2, num_heads=2, width=8, max_positions=40)

CLASSES = Classes(("arts", "sport", "world"))

MakeTrained = Callable[..., Trained]


@pytest.fixture(scope="module", autouse=True)
def on_two_devices() -> Iterator[None]:
    """Runs are trained and scored on two devices. A run of the whole session begins earlier: it says so itself."""
    with two_devices():
        yield


@pytest.fixture(scope="session")
def make_trained() -> MakeTrained:
    """Makes a model with parameters larger than initial ones: `make_trained("sst", "sts", pooling="cls")`."""

    def make(*names: str, max_length: int = 40, task: TextTasks | None = None, **fields: object) -> Trained:
        config = TextTasksConfig(**{"encoder": ENCODER, "pooling": "mean", **fields})
        parts = tuple((name, LABELS[name]) for name in names or LABELS)
        processor = TextProcessor(VOCABULARY, max_length, parts)
        task = task or TextTasks()
        model, inputs = config.build(processor), config.inputs(processor)
        return Trained(task, model, jax.device_put(random_parameters(model, *inputs)), processor, name="tiny")

    return make


@pytest.fixture(scope="session")
def trained(make_trained: MakeTrained) -> Trained:
    """A model of all four parts; its embeddings are means over tokens."""
    return make_trained()


@pytest.fixture(scope="session")
def make_classifier() -> MakeTrained:
    """Makes a classifier with parameters larger than initial ones: `make_classifier(texts=2, pooling="cls")`."""

    def make(
        *,
        texts: int = 1,
        targets: Targets = CLASSES,
        pairs: PairReading = "together",
        **fields: object,
    ) -> Trained:
        config = BertClassifierConfig(**{"encoder": ENCODER, **fields})
        processor = TextClassifierProcessor(VOCABULARY, 40, texts, targets, pairs)
        config.check(processor)
        model, inputs = config.build(processor), config.inputs(processor)
        params = jax.device_put(random_parameters(model, *inputs))
        if isinstance(targets, Scale) and "head" in params:  # predictions between the ends of the scale
            params = {**params, "head": {"kernel": 0.2 * params["head"]["kernel"], "bias": jax.numpy.full(1, 0.5)}}
        return Trained(Classification(), model, params, processor, name="tiny")

    return make
