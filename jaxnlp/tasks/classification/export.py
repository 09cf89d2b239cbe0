"""The functions of classifiers that `jaxnlp export` writes as programs."""

from collections.abc import Mapping
from typing import Any

from jaxnlp.inference.batches import Shape
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.models.text_vectors import cosine
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
    nothing, shortest = read_chunk(processor, ()), 1

    def apply(params: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"outputs": compute(params, inputs)}

    if model.config.compares(processor):  # with the prompts and the truncation of embeddings
        embed = vectors.exported(trained)
        shortest = embed.axes.limits["T"][0]

        def apply(params: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
            texts = ({name: inputs[name][:, index] for name in embed.inputs} for index in range(2))
            return {"outputs": cosine(*(embed.apply(params, text)["vectors"] for text in texts))[:, None]}

    longest = max(shape.length for shape in batch_shapes(processor))
    axes, inputs = axes_of_batches(
        lambda rows, length: nothing.batch((), Shape(rows, length)),
        model.config.reads,
        longest=longest,
        shortest=shortest,
    )
    returns = "outputs [B, C]: the logits of the classes in labels, or a number from 0 to 1 between its ends"
    if processor.targets.sigmoid:
        returns = "outputs [B, 1]: the logits of numbers: a number is the sigmoid of its logit"
    return Exportable(returns, apply, axes, inputs, processor.targets.to_json())
