"""The functions of classifiers that `jaxnlp export` writes as programs."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxnlp.inference.batches import Shape
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.models.text_vectors import cosine
from jaxnlp.targets import Targets
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.encodings import has_bert
from jaxnlp.tasks.classification import vectors
from jaxnlp.tasks.classification.evaluators import outputs_of
from jaxnlp.tasks.classification.inputs import batch_shapes, read_chunk


def exports(trained: Trained) -> dict[str, Exportable]:
    """`classify`, for several parts `classify_NAME`, if there is a head; and `embed` of a BERT or a Vision
    Transformer."""
    functions = {
        "_".join(filter(None, ("classify", name))): _classify(trained, name)
        for name, part in trained.processor.by_part.items()
        if part.outputs
    }
    embeds = has_bert(trained.model) or vectors.of_images(trained.model)
    return functions | ({"embed": vectors.exported(trained)} if embeds else {})


def _classify(trained: Trained, part: str) -> Exportable:
    model: Any = trained.model
    processor, compute = trained.processor.by_part[part], outputs_of(model, part)
    nothing, shortest, targets = read_chunk(processor, ()), 1, processor.targets
    if model.config.compares(processor):  # with the prompts and the truncation of embeddings
        embed = vectors.exported(trained)
        shortest = embed.axes.limits["T"][0]

        def compute(params: Any, inputs: Mapping[str, Any]) -> Any:
            texts = ({name: inputs[name][:, index] for name in embed.inputs} for index in range(2))
            return cosine(*(embed.apply(params, text)["vectors"] for text in texts))[:, None]

    def apply(params: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = compute(params, inputs)
        return {"outputs": jnp.clip(outputs, 0.0, 1.0) if targets.limited else outputs}

    longest = max(shape.length for shape in batch_shapes(processor))
    axes, inputs = axes_of_batches(
        lambda rows, length: nothing.batch((), Shape(rows, length)),
        model.config.reads,
        longest=longest,
        shortest=shortest,
    )
    return Exportable(_returned(targets), apply, axes, inputs, targets.to_json())


def _returned(targets: Targets) -> str:
    """The outputs in words."""
    if targets.names:
        return "outputs [B, C]: the logits of the classes in labels"
    if targets.limited:
        return "outputs [B, 1]: numbers from 0 to 1, the ends of the scale in labels"
    if targets.sigmoid:
        return "outputs [B, 1]: the logits of numbers: a number is the sigmoid of its logit"
    return "outputs [B, 1]: the numbers"
