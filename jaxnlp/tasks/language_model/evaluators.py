"""Evaluators of language models: loss with samples, perplexity with a neural cache, next words, continuations."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from jaxnlp.config import Count, Natural, NonNegative, Rate, Seed, UserPath
from jaxnlp.corpus import DataError, NumpyBatch
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generation import Decoder, compile_generation, decoder_of, generate
from jaxnlp.decoding.rows import jitted_by_rows
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.metrics import total
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.losses import token_nll
from jaxnlp.ops.neural_cache import cache_probability, remembered
from jaxnlp.pages.content import MarkedText
from jaxnlp.saving.serialization import to_json
from jaxnlp.tasks import Evaluation, Evaluator, Metric, MetricKind, Scoring, Section, Trained
from jaxnlp.tasks.language_model.prompts import decode_continuation, known_prompt
from jaxnlp.tasks.language_model.text_scores import check_scorer, score_text
from jaxnlp.tasks.language_model.words import compile_word_sections, word_sections
from jaxnlp.text.windows import NextWordWindow
from jaxnlp.text.words import EOL, WordVocabulary
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

PREDICTED_TOGETHER = 128
"""Number of rows in a batch of next-word predictions, whose logits a decoder computes at all positions."""
SCORED_TOGETHER = 8
"""Number of continuations in a batch of the scorer, which computes the logits at all positions."""
_PART_SALT = 0x9A7
"""Separates the keys of later parts from the keys that `generate` derives from the first part's key."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """The task's loss and its exponential; with task.sample_prompt also a sample for the report."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        metrics = scoring.sums()
        if "loss" in metrics:
            metrics["perplexity"] = perplexity(metrics["loss"])
        return Evaluation(metrics, sections=self._sections(scoring))

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        compile_samples(scoring)

    def _sections(self, scoring: Scoring) -> list[Section]:
        return sample_sections(scoring)


@dataclasses.dataclass(frozen=True)
class RecurrentValidation(Validation):
    """As `Validation`; for words the report also shows the perplexity by position and nearest neighbours."""

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        if _has_word_sections(scoring):
            compile_word_sections(scoring)

    def _sections(self, scoring: Scoring) -> list[Section]:
        return super()._sections(scoring) + (word_sections(scoring) if _has_word_sections(scoring) else [])


def _has_word_sections(scoring: Scoring) -> bool:
    return isinstance(scoring.trained.processor, WordVocabulary) and scoring.training is not None


def perplexity(loss: Metric) -> Metric:
    """exp of a mean in nats; infinite if it is too large for a float."""
    with np.errstate(over="ignore"):
        return Metric(float(np.exp(loss.value)), loss.count)


def decoder(scoring: Scoring, length: int | None = None) -> Decoder:
    """The model's decoder, made once, so that it is compiled once. Args: `length`: as for `decoder_of`."""
    return scoring.once(decoder_of, scoring.trained.model, length)


def sample_sections(scoring: Scoring) -> list[Section]:
    """Text from the task's prompt, if any, at temperature 1; the same seed gives the same text."""
    task: Any = scoring.trained.task
    if task.sample_prompt is None:
        return []
    vocabulary = scoring.trained.processor
    prompt = known_prompt(task.sample_prompt, vocabulary)
    ids = vocabulary.encode(prompt)
    tokens = generate(
        decoder(scoring, len(ids) + task.sample_tokens),
        scoring.whole_params(),
        ids[None],
        max_new_tokens=task.sample_tokens,
        key=jax.random.key(scoring.trained.config.get("seed", 0)),
    )
    text = decode_continuation(vocabulary, (int(token[0]) for token in tokens))
    return [Section("Samples", MarkedText(paragraphs=(((prompt, True), (text, False)),)), keep="all")]


def compile_samples(scoring: Scoring) -> None:
    """Starts to compile the programs of `sample_sections`."""
    task: Any = scoring.trained.task
    if task.sample_prompt is None:
        return
    vocabulary = scoring.trained.processor
    length = len(vocabulary.encode(known_prompt(task.sample_prompt, vocabulary)))
    ahead = decoder(scoring, length + task.sample_tokens)
    compile_generation(scoring.compile, ahead, scoring.whole_params(), 1, length, max_new_tokens=task.sample_tokens)


@dataclasses.dataclass(frozen=True)
class Perplexity(Evaluator):
    """exp of the mean negative log-likelihood per token of a text read in one pass; line ends count as tokens.

    With a window, a continuous cache (Grave et al. 2017) is mixed into the model's probabilities. Choose its options on
    the validation split.
    """

    cache_window: Natural = 0
    """Number of past tokens in the neural cache, W; 0 = no cache."""
    cache_theta: NonNegative = 0.3
    """Weight of hidden-state similarity (theta)."""
    cache_weight: Rate = 0.1
    """Weight of the cache in the mixture (lambda); the model's weight is the rest of 1."""

    def __post_init__(self):
        super().__post_init__()
        if not self.cache_window and (self.cache_theta, self.cache_weight) != (0.3, 0.1):
            raise ValueError("cache_theta and cache_weight apply only to a neural cache; set cache_window")

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {name: MetricKind("tokens", "choices", "lower") for name in ("perplexity", "perplexity_with_cache")}

    def __call__(self, scoring: Scoring) -> Evaluation:
        model: Any = scoring.trained.model
        if not len(scoring.split.batches):
            raise DataError(f"{scoring.split_name} has no text to score")
        empty = functools.partial(empty_carry, model, window=self.cache_window)
        metrics = scoring.fold(_losses_with_cache(model, self), empty)
        name = "perplexity_with_cache" if self.cache_window else "perplexity"
        remarks = {"cache": to_json(self)} if self.cache_window else {}
        return Evaluation({name: perplexity(metrics["loss"])}, remarks=remarks)


def token_losses(
    model: Any, params: Params, batches: Iterator[NumpyBatch], cache: Perplexity | None = None
) -> tuple[float, int]:
    """Negative log-likelihood in nats, summed over one pass, and the number of tokens.

    Args:
      model: a `jaxnlp.models.recurrent_lm.RecurrentLM`.
      params: its parameters.
      batches: in the order of the text; `tokens`, `targets`, `loss_mask` [B, T], and `reset` [B], True for rows that
        start from zero states, as all do without `reset`.
      cache: the options of the cache; None, or a window of 0 = no cache.
    """
    cache = cache or Perplexity()
    step = jit(_losses_with_cache(model, cache), donate_argnums=2)
    losses, carry = [], None
    for batch in batches:
        if carry is None or "reset" not in batch:
            carry = empty_carry(model, len(batch["tokens"]), cache.cache_window)
        metrics, carry = step(params, batch, carry)
        losses.append(metrics)
    loss, count = total(jax.device_get(losses))["loss"]
    return float(loss), int(count)


def empty_carry(model: Any, rows: int, window: int) -> PyTree:
    """Zero states and an empty neural cache of W entries: keys [B, W, K], tokens [B, W], and whether they are
    filled."""
    states = model.empty_cache(rows)
    width = states[-1][0][0].shape[-1]
    memory = (jnp.zeros((rows, window, width)), jnp.zeros((rows, window), jnp.int32), jnp.zeros((rows, window), bool))
    return states, memory


def _losses_with_cache(model: Any, cache: Perplexity) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
    def step(params: Params, batch: Batch, carry: PyTree) -> tuple[Metrics, PyTree]:
        states, memory = carry
        # Without `reset` every row starts a new text, as in the objective.
        begins = batch.get("reset", jnp.ones(len(batch["tokens"]), bool))
        states = jax.tree.map(lambda s: jnp.where(begins[:, None], jnp.zeros_like(s), s), states)
        memory = (*memory[:2], memory[2] & ~begins[:, None])
        read = model.apply({"params": params}, batch["tokens"], states, method="read")
        targets, mask = batch["targets"], batch["loss_mask"]
        likelihood = -token_nll(model.logits(params, read.hidden), targets)
        if cache.cache_window:
            probability, filled = cache_probability(read.outputs, targets, mask, *memory, theta=cache.cache_theta)
            weight = jnp.where(filled, cache.cache_weight, 0.0)
            # Logarithms: exponentials would underflow if both probabilities are near 0.
            likelihood = jnp.logaddexp(jnp.log1p(-weight) + likelihood, jnp.log(weight * probability))
            memory = remembered(read.outputs, targets, mask, *memory)
        loss = -jnp.where(mask, likelihood, 0.0).sum()
        return {"loss": (loss, mask.sum(dtype=jnp.float32))}, (read.states, memory)

    return step


@dataclasses.dataclass(frozen=True)
class NextWord(Evaluator):
    """Mean negative log-likelihood, in nats, of the word after each window of a fixture (CMU 11-785, homework 4).

    The split `prediction` of the homework's data has the windows; --file takes another .npz of `inp` and `out`.
    """

    default_split: ClassVar[str] = "prediction"

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {"next_word_nll": MetricKind("windows", "nats", "lower", title="next-word NLL")}

    def __call__(self, scoring: Scoring) -> Evaluation:
        windows: Sequence[NextWordWindow] = scoring.split.examples
        if not windows or not isinstance(windows[0], NextWordWindow):
            raise DataError(f"{scoring.split_name} has no windows with next words; give --file FILE.npz")
        inputs, targets = (np.stack([getattr(w, name) for w in windows]) for name in ("inputs", "target"))
        losses = next_word_losses(scoring.trained.model, scoring.whole_params(), inputs, targets)
        return Evaluation({"next_word_nll": Metric(float(losses.mean()), len(losses))})


def next_word_losses(model: Any, params: Params, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Negative log-likelihood, in nats, of the word after each row: inputs [N, T], targets [N] -> [N]."""

    def of_rows(params: Params, inputs: Array, targets: Array) -> Array:
        return token_nll(model.predict(params, inputs), targets)

    losses = jitted_by_rows(of_rows)
    parts = [losses(params, *part) for part in _parts(PREDICTED_TOGETHER, inputs, targets)]
    return np.concatenate(parts)[: len(inputs)]


@dataclasses.dataclass(frozen=True)
class Continuations(Evaluator):
    """Continues given prompts (CMU 11-785, homework 4), and scores them with another model.

    The split `generation` of the homework's data has the prompts; --file takes another .npy of token ids [N, T].
    """

    default_split: ClassVar[str] = "generation"

    scorer: UserPath | None = None
    """A language model that scores the continuations: a run, or a folder of GPT-2. Another vocabulary, or a model that
    is not recurrent, reads them as texts, and has the perplexity of its own tokens."""
    max_new_tokens: Count = 20
    """Number of tokens in a continuation."""
    sampling: Annotated[Sampling, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=lambda: Sampling(temperature=0.0)
    )
    seed: Seed = 0
    """The same seed gives the same continuations."""
    num_beams: Count = 1
    """Number of beams; above 1: beam search instead of sampling."""

    def __post_init__(self):
        super().__post_init__()
        drawn = bool(self.seed) or self.sampling != Sampling(temperature=0.0)
        if drawn and self.num_beams > 1:
            raise ValueError("num_beams cannot be combined with temperature, top_k, top_p or seed")
        if drawn and not self.sampling.temperature:
            raise ValueError("--top-k, --top-p and --seed need --temperature: at temperature 0 nothing is sampled")

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {"scorer_perplexity": MetricKind("tokens", "choices", "lower")}

    def __call__(self, scoring: Scoring) -> Evaluation:
        run, prompts = scoring.trained, scoring.split.examples
        if not prompts or not isinstance(prompts[0], np.ndarray):
            raise DataError(f"{scoring.split_name} has no prompts; give --file FILE.npy")
        rows = np.stack(prompts)
        scorer = None if self.scorer is None else self._load_scorer(scoring)
        added = self._continue(decoder(scoring), scoring.whole_params(), rows)
        lines = [
            f"{' '.join(_words(run, prompt))} | {' '.join(_words(run, new))}\n"
            for prompt, new in zip(rows, added, strict=True)
        ]
        predictions = {"continuations.txt": "".join(lines)}
        if scorer is None:
            return Evaluation({}, predictions)
        nll, tokens = self._score(scorer, run, rows, added)
        remarks = {
            "scorer": {"recipe": scorer.name, "steps": scorer.step, "config": scorer.config.get("model")},
            "sampling": to_json(self.sampling) | {"seed": self.seed} if self.num_beams == 1 else None,
            "num_beams": self.num_beams,
            "max_new_tokens": self.max_new_tokens,
        }
        return Evaluation({"scorer_perplexity": Metric(float(np.exp(nll / tokens)), tokens)}, predictions, (), remarks)

    def _load_scorer(self, scoring: Scoring) -> Trained:
        scorer = scoring.load(str(self.scorer))
        check_scorer(scorer, f"--scorer {self.scorer}")
        return scorer

    def _score(self, scorer: Trained, run: Trained, prompts: np.ndarray, added: np.ndarray) -> tuple[float, int]:
        if "perplexity" in scorer.task.evaluators and scorer.processor == run.processor:
            return continuation_loss(scorer, prompts, added)
        decode = run.processor.decode
        scores = [score_text(scorer, decode(new), decode(old)) for old, new in zip(prompts, added, strict=True)]
        return sum(score.nll for score in scores), sum(score.tokens for score in scores)

    def _continue(self, decoder: Decoder, params: Params, prompts: np.ndarray) -> np.ndarray:
        """[N, T] int32 -> [N, max_new_tokens] int32."""
        continuations = []
        for index, (part,) in enumerate(_parts(PREDICTED_TOGETHER, prompts)):
            if self.num_beams > 1:
                beams = beam_search(decoder, params, part, num_beams=self.num_beams, max_new_tokens=self.max_new_tokens)
                continuations.append(np.asarray(beams.tokens[:, 0]))
                continue
            tokens = generate(
                decoder,
                params,
                part,
                max_new_tokens=self.max_new_tokens,
                key=_key_of_part(self.seed, index),
                sampling=self.sampling,
            )
            continuations.append(np.stack(list(tokens), axis=1))
        return np.concatenate(continuations)[: len(prompts)]


def continuation_loss(scorer: Trained, prompts: np.ndarray, added: np.ndarray) -> tuple[float, int]:
    """Negative log-likelihood in nats of continuations [N, n] after prompts [N, T], and their number of tokens."""
    text = np.concatenate([prompts, added], axis=1)
    tokens, targets = text[:, :-1], text[:, 1:]
    scored = np.broadcast_to(np.arange(1, text.shape[1]) >= prompts.shape[1], targets.shape)
    parts = _parts(SCORED_TOGETHER, tokens, targets, scored)
    batches = (dict(zip(("tokens", "targets", "loss_mask"), part, strict=True)) for part in parts)
    return token_losses(scorer.model, scorer.params, batches)


def _key_of_part(seed: int, index: int) -> PRNGKey:
    """A key for each part; the first part has the key of the seed."""
    key = jax.random.key(seed)
    return key if index == 0 else jax.random.fold_in(jax.random.fold_in(key, _PART_SALT), index)


def _parts(rows: int, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Splits arrays [N, ...] into parts of `rows` rows, or N if fewer. Zeros pad the last part, so one program is
    compiled."""
    rows = min(rows, len(arrays[0]))
    for start in range(0, len(arrays[0]), rows):
        part = [array[start : start + rows] for array in arrays]
        yield tuple(np.pad(x, [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1)) for x in part)


def _words(run: Trained, tokens: np.ndarray) -> list[str]:
    """One string per token, also for line ends, so that a continuation stays on one line."""
    return [decode_continuation(run.processor, [token]).strip(" ").replace("\n", EOL) for token in tokens]
