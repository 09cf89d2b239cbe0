"""What a run can be scored on: its own objective; for language models the next word, perplexity, continuations."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data import DataError, LabelledRows, Split
from data.next_word import locate_fixture, read_prediction_fixture, read_prompts
from jaxnlp.decoding.answer import answer
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.runs import Run, make_decoder
from jaxnlp.serialization import to_json
from jaxnlp.text.words import EOL
from train import folder, labelled
from train.config import TrainConfig
from train.evaluation import compile_evaluation, evaluate, exact_match
from train.language import (
    NeuralCache,
    check_language_model,
    check_same_words,
    continuations,
    judge,
    next_word_losses,
    token_losses,
)
from train.objectives import OBJECTIVES
from train.parallel import make_parallel
from train.pretrained import load_data

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Scores:
    """What a run achieves on a split or a file.

    Attributes:
      run: which.
      config: its own.
      split: name of the split, or the file.
      values: each metric's value, and how many tokens or questions it is over.
      answers: to the split's questions, or continuations of its prompts, where it has some.
      prompts: what the answers continue, where they are continuations.
      files: predictions for the rows of text tasks: by the name of a file, its text.
      remarks: what else the ledger says of these numbers.
    """

    run: Run
    config: TrainConfig
    split: str
    values: dict[str, tuple[float, int]]
    answers: list[str]
    remarks: dict[str, Any] = dataclasses.field(default_factory=dict)
    prompts: list[str] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)


def objective(run: Run, config: TrainConfig, split_name: str, file: Path | None, *, asked: bool) -> Scores:
    """The run's own objective, and its answers where there are questions.

    Args:
      run: which.
      config: its own.
      split_name: of its data.
      file: scored in the split's place, in the data's format.
      asked: whether answers are needed.

    Raises:
      DataError: when there is no such split, the file cannot be scored, or answers are needed and there are none.
    """
    name, split = find_split(run, config, split_name, file)
    lacking = set(getattr(config.data, "tasks", ())) - {rows.task for rows in split.labelled}
    if asked and not split.questions and not split.labelled:
        raise DataError(f"--predictions: {name} has {'no file' if lacking else 'no questions'} to answer")
    if lacking and file is None:
        _logger.warning("%s: the data has no file of %s", name, ", ".join(sorted(lacking)))
    values: dict[str, tuple[float, int]] = {}
    if len(split.batches):
        layout = make_parallel("jit")
        step = compile_evaluation(OBJECTIVES[config.objective](run.model, config.loss), layout)
        means, counts = evaluate(step, layout.replicate(run.params), split.batches, layout)
        if split.labelled:
            means |= labelled.loss_over_tasks(means, config)
        values = {metric: (value, counts[metric]) for metric, value in means.items()}
    answers = []
    if split.questions:
        texts = [question.text for question in split.questions]
        answers = answer(make_decoder(run.model), run.params, run.vocabulary, texts)
    if split.questions and split.questions[0].answer is not None:
        values["exact_match"] = (exact_match(answers, split.questions), len(answers))
    files: dict[str, str] = {}
    if split.labelled:
        found, files = _text_tasks(run, split.labelled, split_name if file is None else file.name.partition(".")[0])
        values |= found
    return Scores(run, config, name, values, answers, files=files)


def _text_tasks(
    run: Run, parts: Sequence[LabelledRows], split_name: str
) -> tuple[dict[str, tuple[float, int]], dict[str, str]]:
    """Each task's measures, their mean over tasks, and files of predictions."""
    values: dict[str, tuple[float, int]] = {}
    files = {}
    for rows in parts:
        if rows.truncated:
            longest = rows.batches[-1]["tokens"].shape[-1]
            _logger.warning("%s: %s texts were cut after %s tokens", rows.task, f"{rows.truncated:,}", longest)
        predicted = labelled.predictions(run.model, run.params, rows)
        files[labelled.file_name(rows.task, split_name)] = labelled.file_text(rows, predicted)
        if rows.labels is not None:
            values |= {name: (value, len(rows.ids)) for name, value in labelled.score(rows, predicted).items()}
    scored = [rows for rows in parts if rows.labels is not None]
    if scored:
        means = labelled.mean_score({name: value for name, (value, _) in values.items()}, [r.task for r in scored])
        values[labelled.MEAN_SCORE] = (means, sum(len(rows.ids) for rows in scored))
    return values, files


def find_split(run: Run, config: TrainConfig, split_name: str, file: Path | None) -> tuple[str, Split]:
    """A split of the run's data, or a file in its place, and what it is called."""
    if file is not None:
        return str(file), config.data.read_file(file, run.vocabulary)
    corpus = load_data(config, run.vocabulary)
    folder.check_data(run.folder, corpus)
    return split_name, corpus.split(split_name)


def perplexity(run: Run, config: TrainConfig, split_name: str, file: Path | None, cache: NeuralCache) -> Scores:
    """exp of the mean negative log-likelihood per token of a text, read in one go, line ends counted as tokens.

    Raises: RunError, DataError when the run is no recurrent language model, or there is no such text.
    """
    check_language_model(run)
    name, split = find_split(run, config, split_name, file)
    nll, tokens = token_losses(run.model, run.params, split.batches, cache)
    metric = "perplexity" if not cache.cache_window else "perplexity_with_cache"
    values = {metric: (float(np.exp(nll / tokens)), tokens)}
    return Scores(run, config, name, values, [], {"cache": to_json(cache)} if cache.cache_window else {})


def next_word(run: Run, config: TrainConfig, file: Path | None) -> Scores:
    """Mean negative log-likelihood, in nats, of the word that follows each of the homework's windows.

    Raises: RunError, DataError, FileNotFoundError when the run is no recurrent language model of WikiText-2's words, or
      the fixture cannot be read.
    """
    check_language_model(run)
    path = file or locate_fixture(config.data, run.vocabulary, "prediction.npz")
    inputs, targets = read_prediction_fixture(path, run.vocabulary.size)
    losses = next_word_losses(run.model, run.params, inputs, targets)
    name = "prediction" if file is None else str(file)
    return Scores(run, config, name, {"next_word_nll": (float(losses.mean()), len(losses))}, [])


def complete(
    run: Run,
    config: TrainConfig,
    file: Path | None,
    *,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int,
    num_beams: int,
    judging: Run | None,
) -> Scores:
    """Continuations of the homework's prompts, and what another model makes of them.

    Raises: RunError, DataError, FileNotFoundError as `next_word`, and when the judge knows other words.
    """
    check_language_model(run)
    path = file or locate_fixture(config.data, run.vocabulary, "generation.npy")
    prompts = read_prompts(path, run.vocabulary.size)
    values, remarks = {}, {}
    if judging is not None:
        check_language_model(judging, "give another --judge")
        check_same_words(run, judging)
    added = continuations(
        run, prompts, max_new_tokens=max_new_tokens, sampling=sampling, seed=seed, num_beams=num_beams
    )
    if judging is not None:
        nll, tokens = judge(judging, prompts, added)
        values = {"judge_perplexity": (float(np.exp(nll / tokens)), tokens)}
        remarks = {
            "judge": {"recipe": judging.config["recipe"], "steps": judging.step, "config": judging.config["model"]},
            "sampling": to_json(sampling) | {"seed": seed} if num_beams == 1 else None,
            "num_beams": num_beams,
            "max_new_tokens": max_new_tokens,
        }
    texts = [" ".join(_words(run, row)) for row in added]
    begun = [" ".join(_words(run, row)) for row in prompts]
    return Scores(run, config, "generation" if file is None else str(file), values, texts, remarks, prompts=begun)


def _words(run: Run, tokens: np.ndarray) -> list[str]:
    """One a token, line ends too: a continuation is to stay on its line."""
    return [run.vocabulary.decode([token]).strip(" ").replace("\n", EOL) for token in tokens]
