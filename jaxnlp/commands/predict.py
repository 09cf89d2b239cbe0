"""`python -m jaxnlp predict`."""

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from jaxnlp.commands.files import chunks, one_line, report_cut, rows_of
from jaxnlp.decoding.answer import answer
from jaxnlp.encoders import is_run, load_text_model, text_model_of
from jaxnlp.models.text_tasks import TextTasks
from jaxnlp.runs import Run, RunError, load_run, make_decoder
from jaxnlp.text.characters import MASK, CharacterVocabulary
from jaxnlp.text.tasks import TASKS, TaskName
from jaxnlp.text.wordpiece import WordPieceVocabulary
from jaxnlp.texts import TextModel, labels_of, predict_texts


@dataclasses.dataclass(frozen=True)
class Predict:
    """Answers questions, or says of texts what a run of text tasks learned to say: one line for each.

    Lines about texts have tabs between their parts: the likeliest class and its probability, for two texts of which it
    is asked whether they mean the same 1 or 0 and its probability, or how alike they are from 0 to 5; then the text, or
    both, line breaks replaced by blanks.
    """

    run: tyro.conf.Positional[str]
    """The run's folder. For how alike texts are also a pretrained BERT's folder, or its name on the Hugging Face Hub:
    the cosine of mean vectors."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Questions, or texts; none = those of the file, or of standard input."""
    pair: tuple[str, ...] = ()
    """The second text of each, for tasks about two."""
    file: Path | None = None
    """A file with one text a line, UTF-8, or for tasks about two texts both with a tab between them; - = standard
    input."""
    task: TaskName | None = None
    """Which of the run's tasks. None = the one that fits the number of texts; where several do, each, with its name at
    the beginning of the line."""
    ignore: tuple[str, ...] = ()
    """Tensors of a pretrained model to leave alone, by their names or how these begin, such as classifier."""
    checkpoint: int | Literal["best", "latest"] = "best"
    """The best on the validation split, the newest, or a step."""


def predict(command: Predict) -> None:
    """Prints the answers; those to a file's first lines before it reads the rest.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint, or it knows no answers.
      PretrainedError, WeightsError: for what is neither a run nor a pretrained model.
      QuestionError: for a question that cannot be spelt, or is too long.
      ValueError, OSError: for texts that are missing or cannot be read, and tasks that do not fit them.
    """
    if is_run(command.run):
        run = load_run(command.run, checkpoint=command.checkpoint)
        if isinstance(run.vocabulary, WordPieceVocabulary):
            _say(command, text_model_of(run))
        else:
            _answer(command, run)
    else:
        _say(command, load_text_model(command.run, checkpoint=command.checkpoint, ignore=command.ignore))


def _answer(command: Predict, run: Run) -> None:
    if not isinstance(run.vocabulary, CharacterVocabulary) or MASK not in run.vocabulary.characters:
        raise RunError(f"the run in {command.run} was not trained on questions; continue a text with: generate")
    if command.task is not None:
        raise ValueError(f"the run in {command.run} was trained on questions, and has no tasks: leave out --task")
    decoder = make_decoder(run.model)
    for rows in chunks(rows_of(command.texts, command.pair, command.file, count=1)):
        for line in answer(decoder, run.params, run.vocabulary, [question for (question,) in rows]):
            print(" ".join(line.splitlines()))


def _say(command: Predict, held: TextModel) -> None:
    names = _tasks(command, held.model)
    count = TASKS[names[0]].texts
    texts = truncated = 0
    for rows in chunks(rows_of(command.texts, command.pair, command.file, count=count)):
        columns = list(zip(*rows, strict=True))
        found = [predict_texts(held, *columns, task=name) for name in names]
        for number, row in enumerate(rows):
            for name, outcome in zip(names, found, strict=True):
                parts = [*_shown(name, outcome.values[number]), *map(one_line, row)]
                print("\t".join([name, *parts] if len(names) > 1 else parts))
        print(end="", flush=True)
        texts, truncated = texts + len(rows) * count, truncated + found[0].truncated
    report_cut(truncated, texts, held.longest)


def _tasks(command: Predict, model: TextTasks) -> list[TaskName]:
    """Those asked for."""
    names = model.config.tasks
    if command.task is not None:
        if command.task not in names:
            raise ValueError(f"{command.run} has no task {command.task}; it has {', '.join(names)}")
        return [command.task]
    by_count: dict[int, list[TaskName]] = {1: [], 2: []}
    for name in names:
        by_count[TASKS[name].texts].append(name)
    from_command = bool(command.texts or command.pair)
    fitting = [count for count, found in by_count.items() if found]
    if from_command:
        count = 2 if command.pair else 1
        if count not in fitting:
            hint = "leave out --pair" if count == 2 else "give the second texts with --pair"
            raise ValueError(f"{', '.join(names)}: tasks about {fitting[0]} text(s); {hint}")
        return by_count[count]
    if len(fitting) > 1:
        raise ValueError(
            f"{command.run} has tasks about one text, {', '.join(by_count[1])}, and about two, "
            f"{', '.join(by_count[2])}: choose with --task what the lines are"
        )
    return by_count[fitting[0]]


def _shown(name: TaskName, value: np.ndarray) -> list[str]:
    """An answer as it is printed."""
    kind = TASKS[name].kind
    if kind == "similarity":
        return [f"{value:.2f}"]
    probability = max(value, 1 - value) if kind == "paraphrase" else value.max()
    return [str(int(labels_of(name, value))), f"{probability:.2f}"]
