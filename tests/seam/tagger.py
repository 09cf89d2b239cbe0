"""A family that the library does not have: a tagger with a linear-chain CRF. Data, model, task, recipe and verb.

python -m tests.seam.tagger WORKDIR
"""

import dataclasses
import hashlib
import sys

import chex
import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console

from data import DataConfig
from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.models import ModelConfig, Parameter
from jaxnlp.nn.dense import Dense
from jaxnlp.pages.content import MarkedText, Table
from jaxnlp.tasks import Command, Evaluation, Evaluator, Metric, MetricKind, Objective, Section, Task
from train.config import TrainConfig
from train.loop import fit
from train.optimizer import Muon

WORDS = ("the", "a", "dog", "cat", "sees", "bites", "old", "red")
TAGS = {"the": "DET", "a": "DET", "dog": "NOUN", "cat": "NOUN", "sees": "VERB", "bites": "VERB"}


@dataclasses.dataclass(frozen=True)
class TagProcessor:
    """Words and tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def to_json(self):
        return {"words": list(self.words), "tags": list(self.tags)}

    @classmethod
    def from_json(cls, fields):
        return cls(tuple(fields["words"]), tuple(fields["tags"]))

    def encode(self, words):
        unknown = [word for word in words if word not in self.words]
        if unknown:
            raise ValueError(f"the word {unknown[0]!r} is not in the vocabulary")
        return np.array([self.words.index(word) for word in words], np.int32)


@dataclasses.dataclass(frozen=True)
class TaggedSentences(DataConfig):
    """Random sentences; an adjective after a determiner is tagged ADJ, and elsewhere X."""

    length: int = 6
    """Words of a sentence, at most."""

    @property
    def max_length(self):
        return self.length

    def load(self, seed, processor=None):
        processor = processor or TagProcessor(WORDS, ("ADJ", "DET", "NOUN", "VERB", "X"))
        parts = {
            name: _sentences(np.random.default_rng(n), self.length) for n, name in enumerate(("train", "validation"))
        }
        rows = [_example(sentence, processor, self.length) for sentence in parts["train"]]
        train = grain.MapDataset.source(rows).seed(seed).shuffle().repeat(2**20).batch(self.batch_size)
        return Corpus(
            train=train.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
            splits={name: _split(sentences, processor, self) for name, sentences in parts.items()},
            processor=processor,
            description=f"{len(rows)} tagged sentences",
            fingerprint=hashlib.sha256(repr(parts).encode()).hexdigest(),
        )

    def read_file(self, path, processor):
        sentences = []
        for number, line in enumerate(read_text_file(path).removesuffix("\n").split("\n"), 1):
            words = line.split()
            try:
                processor.encode(words)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
            if not words:
                raise DataError(f"{path}, line {number}: no words; remove the line")
            if len(words) > self.length:
                raise DataError(
                    f"{path}, line {number}: {len(words)} words, and data.length is {self.length}; split the sentence"
                )
            sentences.append((words, None))
        return _split(sentences, processor, self, scored=False)


def _sentences(generator, length):
    found = []
    for _ in range(48):
        words = [str(word) for word in generator.choice(WORDS, size=generator.integers(2, length + 1))]
        before = ["", *words[:-1]]
        tags = [TAGS.get(w, "ADJ" if TAGS.get(b) == "DET" else "X") for b, w in zip(before, words, strict=True)]
        found.append((words, tags))
    return found


def _example(sentence, processor, length):
    words, tags = sentence
    ids, mask = np.zeros((2, length), np.int32), np.arange(length) < len(words)
    ids[0, : len(words)] = processor.encode(words)
    ids[1, : len(words)] = [processor.tags.index(tag) for tag in tags or processor.tags[:1] * len(words)]
    return {"tokens": ids[0], "tags": ids[1], "loss_mask": mask}


def _split(sentences, processor, config, scored=True):
    order = np.argsort([len(words) for words, _ in sentences], kind="stable")
    rows = [_example(sentences[i], processor, config.length) for i in order]
    rows += [{name: np.zeros_like(x) for name, x in rows[0].items()}] * (-len(rows) % 16)
    batches = [
        {name: np.stack([row[name] for row in rows[i : i + 16]]) for name in rows[0]} for i in range(0, len(rows), 16)
    ]
    return Split(tuple(batches), tuple(sentences), rows=order, scored=scored)


@dataclasses.dataclass(frozen=True)
class TaggerConfig(ModelConfig):
    width: int = 16
    """Model width, D."""

    def build(self, processor):
        return Tagger(self, len(processor.words), len(processor.tags))

    def parameter(self, path):
        return {
            ("tokens", "embedding"): Parameter("VD", "below"),
            ("previous", "kernel"): Parameter("DD", matrix=True),
            ("previous", "bias"): Parameter("D"),
            ("scores", "kernel"): Parameter("DC", matrix=True, head=True),
            ("scores", "bias"): Parameter("C", head=True),
            ("transitions",): Parameter("CC", head=True),
        }[path]


class Tagger(nn.Module):
    config: TaggerConfig
    vocabulary_size: int
    tags: int

    @nn.compact
    def __call__(self, tokens):
        """Args: tokens [B, T]. Returns: scores [B, T, C] and transitions [C, C], both float32."""
        chex.assert_rank(tokens, 2)
        compute = self.config.compute
        axes = chex.Dimensions(B=tokens.shape[0], T=tokens.shape[1], D=self.config.width, C=self.tags)
        x = nn.Embed(self.vocabulary_size, self.config.width, compute.activation_dtype, name="tokens")(tokens)
        before = jnp.pad(x, [(0, 0), (1, 0), (0, 0)])[:, :-1]
        chex.assert_shape((x, before), axes["BTD"])
        before = Dense(self.config.width, compute=compute, name="previous")(before.reshape(-1, self.config.width))
        x = jnp.tanh(x.reshape(-1, self.config.width) + before)
        scores = Dense(self.tags, compute=compute, name="scores")(x).reshape(axes["BTC"])
        return scores.astype(jnp.float32), self.param("transitions", nn.initializers.zeros, axes["CC"])


def crf_loss(scores, transitions, tags, mask):
    """Negative log-likelihood [B] of tags [B, T], for scores [B, T, C]; the mask [B, T] is True up to each length."""
    axes = chex.Dimensions(B=scores.shape[0], T=scores.shape[1], C=scores.shape[2])
    chex.assert_shape((scores, transitions, tags, mask), [axes["BTC"], axes["CC"], axes["BT"], axes["BT"]])
    emitted = jnp.take_along_axis(scores, tags[:, :, None], axis=-1)[..., 0]
    moved = transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
    gold = (emitted * mask).sum(axis=1) + moved.sum(axis=1)

    def forward(alpha, now):
        score, real = now
        new = jax.nn.logsumexp(alpha[:, :, None] + transitions[None], axis=1) + score
        return jnp.where(real[:, None], new, alpha), None

    alpha, _ = jax.lax.scan(forward, scores[:, 0], (scores[:, 1:].swapaxes(0, 1), mask[:, 1:].T))
    return jax.nn.logsumexp(alpha, axis=-1) - gold


def viterbi(scores, transitions):
    """The best tags [T] of one sentence, from scores [T, C]; NumPy."""
    best, back = scores[0], []
    for score in scores[1:]:
        moved = best[:, None] + transitions
        back.append(moved.argmax(axis=0))
        best = moved.max(axis=0) + score
    path = [int(best.argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return path[::-1]


def scores_of(model):
    return lambda params, batch: model.apply({"params": params}, batch["tokens"])[0]


@dataclasses.dataclass(frozen=True)
class TagValidation(Evaluator):
    """Share of words with the right tag, in the best sequence."""

    def compile_ahead(self, scoring):
        super().compile_ahead(scoring)
        scoring.compile_outputs(scoring.once(scores_of, scoring.trained.model))

    def __call__(self, scoring):
        trained, examples = scoring.trained, scoring.split.examples
        scores = scoring.outputs(scoring.once(scores_of, trained.model))
        transitions = np.asarray(scoring.whole_params()["transitions"])
        tags = [
            [trained.processor.tags[i] for i in viterbi(row[: len(words)], transitions)]
            for row, (words, _) in zip(scores, examples, strict=True)
        ]
        lines = "".join(" ".join(row) + "\n" for row in tags)
        if not scoring.split.scored:
            return Evaluation({}, {"tags.txt": lines})
        right = [a == b for row, (_, gold) in zip(tags, examples, strict=True) for a, b in zip(row, gold, strict=True)]
        table = Table(
            ("sentence", "tags"),
            tuple((" ".join(w), " ".join(t)) for (w, _), t in zip(examples[:5], tags, strict=False)),
        )
        marked = MarkedText(((("<script>", True), ("escaped", False)),))
        metrics = scoring.sums() | {"accuracy": Metric(float(np.mean(right)), len(right))}
        return Evaluation(metrics, {"tags.txt": lines}, [Section("Tags", table), Section("Marked", marked, "all")])


@dataclasses.dataclass(frozen=True)
class TagWords(Command):
    """Tags the words of a sentence."""

    words: tyro.conf.Positional[tuple[str, ...]]
    """The sentence's words."""

    def __call__(self, trained):
        if not self.words:
            raise ValueError("give the words of a sentence")
        tokens = trained.processor.encode(self.words)[None]
        scores, transitions = trained.model.apply({"params": trained.params}, tokens)
        print(" ".join(trained.processor.tags[i] for i in viterbi(np.asarray(scores[0]), np.asarray(transitions))))


@dataclasses.dataclass(frozen=True)
class Tagging(Task):
    """Tags of words, by a linear-chain CRF."""

    evaluators = {"validation": TagValidation}
    commands = {"tag": TagWords}

    l2: float = 0.0
    """Weight of the transitions' squares in training."""

    def metrics(self, processor, split):
        loss = MetricKind("sentences", "nats", "lower")
        found = {"loss": loss, "loss_per_word": MetricKind("words", "nats", "lower")}
        return (
            found
            | ({"objective": loss._replace(training_only=True)} if self.l2 else {})
            | ({"accuracy": MetricKind("words")} if split.scored else {})
        )

    def objective(self, model, corpus):
        def loss(params, batch, key, carry):
            scores, transitions = model.apply({"params": params}, batch["tokens"])
            real = batch["loss_mask"].any(axis=1)
            nll = jnp.where(real, crf_loss(scores, transitions, batch["tags"], batch["loss_mask"]), 0.0).sum()
            count = real.sum(dtype=jnp.float32)
            words = batch["loss_mask"].sum(dtype=jnp.float32)
            metrics = {"loss": (nll, count), "loss_per_word": (nll, words)}
            scalar = nll / jnp.maximum(count, 1.0)
            if key is not None and self.l2:
                scalar += self.l2 * jnp.square(transitions).sum()
                metrics["objective"] = (scalar * count, count)
            return scalar, (metrics, carry)

        return Objective(loss, progress="loss_per_word")


def get_config(**changes):
    """The recipe."""
    plain = TrainConfig(
        recipe="toy_tagger",
        data=TaggedSentences(batch_size=16),
        model=TaggerConfig(),
        task=Tagging(l2=1e-3),
        optimizer=Muon(learning_rate=5e-2, weight_decay=0.01),
        best_metric="accuracy",
        total_steps=40,
        evaluate_every_steps=20,
        checkpoint_every_steps=10,
    )
    return dataclasses.replace(plain, **changes)


if __name__ == "__main__":
    from tests.seam import tagger  # by its own name, which the run's config records

    fit(tagger.get_config(), sys.argv[1], console=Console())
