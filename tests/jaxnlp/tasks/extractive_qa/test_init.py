import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.invented_people_qa import get_config
from jaxnlp.corpus import Corpus, Split
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks.extractive_qa import ExtractiveQA
from jaxnlp.text.question_contexts import ContextQuestion


def test_a_short_run_learns_and_measures_what_is_declared(run, trained):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if line["split"] == "validation")
    first = next(line for line in lines if line["split"] == "train")
    assert last["loss"] < 0.6 * first["loss"]
    assert last["f1"] > 0.5
    corpus = dataclasses.replace(get_config().data, people=60).load(0, trained.processor)
    assert set(trained.task.metrics(trained.processor, corpus.splits["validation"])) <= last.keys()


@pytest.mark.thorough
def test_the_loss_is_the_mean_of_two_cross_entropies_over_the_words_of_the_context(bert):
    context = "Ann was born in Lima."
    windows = bert.processor.windows([ContextQuestion("", "Where was Ann born?", context)] * 2)
    batch = bert.processor.batch(windows, 3, 20) | {"span": np.int32([[11, 12], [0, 0], [5, 5]])}
    corpus = Corpus((), {}, bert.processor, "", "")
    objective, (metrics, _) = jax.jit(bert.task.objective(bert.model, corpus).loss, static_argnums=2)(
        bert.params, batch, None, ()
    )
    scores = np.asarray(
        bert.model.apply({"params": bert.params}, *(batch[name] for name in bert.model.config.reads)), np.float64
    )
    exps = np.where(batch["answer_mask"], np.exp(scores), 0.0)
    probs = exps / exps.sum(axis=1, keepdims=True)
    nll = [-np.log(probs[row, token, side]) for row, side in np.ndindex(2, 2) for token in [batch["span"][row, side]]]
    assert float(objective) == pytest.approx(np.mean(nll), rel=1e-5)
    assert float(metrics["loss"][0]) == pytest.approx(np.sum(nll) / 2, rel=1e-5)
    assert float(metrics["loss"][1]) == 2.0


@pytest.mark.thorough
def test_every_parameter_but_the_pooler_has_a_gradient(bert):
    windows = bert.processor.windows([ContextQuestion("", "Where was Ann born?", "Ann was born in Lima.")])
    batch = jax.tree.map(jnp.asarray, bert.processor.batch(windows, 1, 20) | {"span": np.int32([[11, 12]])})
    loss = bert.task.objective(bert.model, Corpus((), {}, bert.processor, "", "")).loss
    gradients = jax.jit(jax.grad(lambda params: loss(params, batch, None, ())[0]))(bert.params)
    flat = {"/".join(str(key.key) for key in path): x for path, x in jax.tree_util.tree_leaves_with_path(gradients)}
    assert {name.split("/")[1] for name, x in flat.items() if not np.any(x)} == {"pooler"}


def test_metrics_of_both_kinds_of_questions_are_declared_only_where_both_are():
    def declared(*answers):
        return set(ExtractiveQA().metrics(None, Split(examples=[ContextQuestion("", "", "", one) for one in answers])))

    assert declared(()) == declared((1,)) == {"loss", "exact_match", "f1"}
    assert declared((), (1,)) - declared(()) == {"answerable/f1", "unanswerable/accuracy"}
    assert set(ExtractiveQA().metrics(None, Split())) == {"loss"}


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="needs an AnswerSpanConfig, got RecurrentLMConfig"):
        ExtractiveQA().check(RecurrentLMConfig(), get_config().data)
