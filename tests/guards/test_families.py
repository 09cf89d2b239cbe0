"""Each family of models trains to the numbers in families.json, which were stored before the code was rearranged.

The functions of the table FAMILIES return a config each. When a field or a class is renamed, only these functions and
`train` change; the stored values stay. A change that is meant to alter numbers writes the file again:

    python -m tests.guards.test_families --write
"""

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from rich.console import Console

from data.character_text import CharacterText
from data.invented_people import invent, write
from data.masked_text import MaskedText
from data.names import NamesPretraining, NamesQuestions
from data.text_table import TextTable
from data.word_text import WordText
from jaxnlp.convert.pretrained_encoder import Pretrained, save_pretrained
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from jaxnlp.tasks.question_answering import QuestionAnswering
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from train.config import TrainConfig
from train.loop import fit
from train.optimizer import SGD, AdamW, Muon
from train.optimizer.schedules import Constant, Cosine
from train.parallel import make_parallel

STORED = Path(__file__).with_name("families.json")
WRITE = "JAXNLP_WRITE_GUARDS"

# Adam and Muon divide by the size of the gradient, so they amplify rounding where it is nearly 0. A large epsilon and
# few steps keep the numbers of different processors together.
EPSILON = 1e-3


def gpt_characters(files):
    return run(
        CharacterText(source="text_file", path=files("text.txt"), batch_size=8, sequence_length=12),
        gpt(num_layers=2, use_bias=False, tie_embeddings=True),
        ema_decay=0.9,
        accumulation_steps=2,
    )


def gpt_perceiver(files):
    model = gpt(
        PerceiverConfig, num_layers=4, context_length=96, compute=TransformerCompute(scan_layers=True), num_latents=8
    )
    return run(NamesQuestions(**names(files)), model, task=QuestionAnswering(), best_metric="exact_match")


def gpt_perceiver_along(files):
    model = gpt(PerceiverConfig, num_layers=3, context_length=96, num_latents=8, latent_placement="along")
    return run(NamesQuestions(**names(files)), model, task=QuestionAnswering(), best_metric="exact_match")


def gpt_synthesizer(files):
    """On the pretraining of names, which masks facts and mixes in questions."""
    data = NamesPretraining(
        corruption="facts",
        place_fraction=0.9,
        question_fraction=0.2,
        facts_length=56,
        max_left_padding=12,
        **names(files),
    )
    return run(
        data,
        gpt(SynthesizerConfig, num_layers=2, context_length=96, compute=TransformerCompute(scan_layers=True)),
        task=QuestionAnswering(),
    )


def lstm_streams(files):
    """As AWD-LSTM: carried state, AR and TAR, SGD, and the mean of the parameters from a stall on."""
    return run(
        words(files, "streams", length_multiple=4),
        lstm(tie_embeddings=True, embedding_dropout_rate=0.1, weight_dropout_rate=0.3),
        task=RecurrentLanguageModel(activation_regularization=2.0, temporal_activation_regularization=1.0),
        optimizer=SGD(
            learning_rate=40.0, weight_decay=1e-3, max_grad_norm=None, reference_tokens=64, schedule=Constant()
        ),
        nt_asgd_patience=0,
        evaluate_every_steps=1,
        total_steps=5,
    )


def gru_windows(files):
    return run(words(files, "windows"), lstm(cell="gru"), task=RecurrentLanguageModel())


def lstm_sampled_softmax(files):
    return run(
        words(files, "streams", length_multiple=8),
        lstm(tie_embeddings=True, scale_embeddings=True, forget_bias=1.0, init_bias_from_unigram=True),
        task=RecurrentLanguageModel(num_sampled=6, num_frequent=5),
        optimizer=muon(),
        ema_decay=0.9,
    )


def bert_text_tasks(files):
    return text_tasks(files, schedule="round_robin")


def bert_text_tasks_surgery(files):
    return text_tasks(files, schedule="together", gradient_surgery=True)


def bert_pretraining(files):
    data = MaskedText(
        source="text_file", path=files("documents.txt"), vocabulary_size=80, sequence_length=24, batch_size=8
    )
    encoder = dataclasses.replace(ENCODER, max_positions=24, dropout_rate=0.1)
    return run(data, BertPretrainingConfig(encoder=encoder), task=MaskedLanguageModel(), optimizer=muon())


FAMILIES = [
    gpt_characters,
    gpt_perceiver,
    gpt_perceiver_along,
    gpt_synthesizer,
    lstm_streams,
    gru_windows,
    lstm_sampled_softmax,
    bert_text_tasks,
    bert_text_tasks_surgery,
    bert_pretraining,
]

ENCODER = BertConfig(num_layers=2, num_heads=2, width=8, feed_forward_width=12, max_positions=16)


def run(data, model, **changes):
    steps = changes.get("total_steps", 4)
    plain = {
        "recipe": "guard",
        "task": LanguageModel(),
        "optimizer": AdamW(learning_rate=3e-2, epsilon=EPSILON, weight_decay=0.1, schedule=Cosine(warmup=2)),
        "total_steps": steps,
        "evaluate_every_steps": steps,
        "checkpoint_every_steps": steps,
        "log_every_steps": 1,
    }
    return TrainConfig(**plain | {"data": data, "model": model} | changes)


def muon():
    return Muon(learning_rate=1e-2, epsilon=EPSILON, beta2=0.99, weight_decay=0.1)


def gpt(kind=GPTConfig, **changes):
    rates = {"embedding_dropout_rate": 0.1, "attention_dropout_rate": 0.1, "residual_dropout_rate": 0.1}
    return kind(**{"num_heads": 2, "width": 8, "context_length": 12} | rates | changes)


def names(files):
    return {"path": files("people"), "held_out": 8, "sequence_length": 96, "batch_size": 8}


def words(files, mode, **changes):
    plain = {"batch_size": 8, "minimum_count": 1, "evaluation_batch_size": 8, "sequence_length": 8}
    return WordText(source="text_file", path=files("text.txt"), mode=mode, **plain | changes)


def lstm(**changes):
    rates = {"input_dropout_rate": 0.1, "hidden_dropout_rate": 0.1, "output_dropout_rate": 0.1}
    return RecurrentLMConfig(**{"embedding_width": 8, "widths": (6, 8)} | rates | changes)


def text_tasks(files, schedule, **options):
    return run(
        TextTable(
            parts=("sst", "sts"),
            pairs="apart",
            path=files("tables"),
            batch_size=8,
            max_length=16,
            evaluation_batch_size=8,
            schedule=schedule,
        ),
        BertClassifierConfig(pooling="mean", similarity="cosine"),
        task=Classification(part_weights=(1.0, 3.0), **options),
        init_from=files("weights"),
        optimizer=AdamW(learning_rate=1e-2, epsilon=EPSILON, layer_decay=0.7),
        best_metric="mean_score",
    )


def write_weights(folder):
    """A folder of a small BERT's random weights."""
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
    params = jax.jit(Bert(ENCODER, vocabulary.size).init)(jax.random.key(7), jnp.zeros((1, 1), jnp.int32))["params"]
    save_pretrained(folder, Pretrained(ENCODER, jax.device_get(params), None, vocabulary))


def train(config, folder):
    """Trains on one device, which compiles faster than eight, and without the report; returns the last state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.loop.write_report", lambda _: None)
        patch.setattr("train.loop.make_parallel", lambda mode, **_: make_parallel(mode, jax.devices()[:1]))
        with jax.numpy_dtype_promotion("standard"):  # Optax raises a Python float to an integer power
            return fit(config, folder, console=Console(file=io.StringIO())).state


WORDS = ["good", "bad", "film", "plot", "dog", "cat", "sea", "sand", "red", "blue", "tide", "stone"]


def write_tables(folder):
    """Reviews and pairs of texts, each with a random label."""
    draw = np.random.default_rng(0)
    folder.mkdir()
    for prefix, columns, texts, top in (
        ("ids-sst", "sentence\tsentiment", 1, 5),
        ("sts", "sentence1\tsentence2\tsimilarity", 2, 6),
    ):
        for part, count in (("train", 40), ("dev", 12), ("test-student", 3)):
            header, lines = f"\tid\t{columns}", []
            for number in range(count):
                sentences = [" ".join(draw.choice(WORDS, size=5)) for _ in range(texts)]
                lines.append("\t".join([str(number), f"{prefix}{part}{number}", *sentences, str(draw.integers(top))]))
            if part == "test-student":
                lines, header = [line.rpartition("\t")[0] for line in lines], header.rpartition("\t")[0]
            (folder / f"{prefix}-{part}.csv").write_text("\n".join([header, *lines]) + "\n")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The path of a file or folder of tiny data, by its name."""
    folder = tmp_path_factory.mktemp("guards")
    draw = np.random.default_rng(0)
    (folder / "text.txt").write_text(" ".join(draw.choice(WORDS, size=400)))
    documents = ["".join(" ".join(draw.choice(WORDS, size=5)) + "\n" for _ in range(4)) for _ in range(20)]
    (folder / "documents.txt").write_text("\n".join(documents))
    write(invent(0, train=24, dev=4, test=2), folder / "people")
    write_tables(folder / "tables")
    write_weights(folder / "weights")
    return lambda name: str(folder / name)


def summary(values):
    """Number, sum, sum of squares, first and last of the elements of an array of any shape."""
    values = np.asarray(values, np.float64).ravel()
    return [values.size, *(float(f"{x:.8g}") for x in (values.sum(), np.square(values).sum(), values[0], values[-1]))]


def summaries(params):
    return {"/".join(path): summary(values) for path, values in sorted(flatten_dict(params).items())}


NOT_COMPARED = ("seconds", "per_second", "time")
"""Parts of the names of logged values that are timings."""


def numbers_of(config, folder):
    """What is compared: each logged line without timings, the parameters, and their average if there is one."""
    state = train(config, folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{name: value for name, value in row.items() if not any(p in name for p in NOT_COMPARED)} for row in rows]
    averaged = config.ema_decay is not None or config.nt_asgd_patience is not None
    return {
        "metrics": {f"{row.pop('split')} {row.pop('step')}": row for row in rows},
        "parameters": summaries(state.params),
        "average": summaries(state.evaluation_params) if averaged else {},
    }


def assert_close(found, stored, tolerance):
    for part in ("parameters", "average"):
        assert found[part].keys() == stored[part].keys()
        for name, (elements, total, squares, *ends) in stored[part].items():
            got = found[part][name]
            assert got[0] == elements, f"{part}: {name}"
            # The sum of N values may cancel: its error is measured against sqrt(N) times their norm.
            norm, count = squares**0.5, elements**0.5
            scales = [norm * count, squares, norm / count, norm / count]
            for value, expected, scale in zip(got[1:], [total, squares, *ends], scales, strict=True):
                assert abs(value - expected) <= 2 * tolerance * scale + 1e-7, f"{part}: {name}: {value} for {expected}"
    assert found["metrics"].keys() == stored["metrics"].keys()
    for line, expected in stored["metrics"].items():
        for name, value in expected.items():
            np.testing.assert_allclose(
                found["metrics"][line][name], value, rtol=2 * tolerance, atol=1e-5, err_msg=f"{line}: {name}"
            )


def dumped(families):
    """JSON, a line for each logged line and each parameter."""
    text = json.dumps(families)
    return re.sub(r'(\{|[\]}], )(?="[^"]*": [\[{])', r"\1\n", text) + "\n"


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_training_gives_the_stored_numbers(family, files, tmp_path):
    config = family(files)
    found = numbers_of(config, tmp_path / "run")
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if os.environ.get(WRITE) == "1":
        STORED.write_text(dumped(stored | {family.__name__: found}))
        return
    # Muon's orthogonalisation amplifies rounding a hundredfold.
    assert_close(found, stored[family.__name__], 2e-3 if config.optimizer.kind == "muon" else 1e-4)


def test_every_family_has_stored_numbers_and_no_other():
    assert json.loads(STORED.read_text()).keys() == {family.__name__ for family in FAMILIES}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.guards.test_families --write")
    STORED.unlink(missing_ok=True)
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", __file__], env=os.environ | {WRITE: "1"}).returncode)
