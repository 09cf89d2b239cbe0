"""Language modelling of images: each pixel is a token, predicted from the previous pixels."""

import dataclasses

from jaxnlp.config import Natural
from jaxnlp.corpus import Corpus, DataError
from jaxnlp.images.palette import Palette
from jaxnlp.models import ModelConfig
from jaxnlp.tasks import Method
from jaxnlp.tasks.image_language_model.evaluators import Validation
from jaxnlp.tasks.image_language_model.generation import Generate, generate, warm_up
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.tasks.language_model.export_command import ExportDecoder


@dataclasses.dataclass(frozen=True)
class ImageLanguageModel(LanguageModel):
    """Mean cross-entropy of each pixel given the previous ones, row by row, in nats per pixel.

    Source: Chen et al. 2020 (Image GPT); karpathy/minGPT, play_image.
    """

    model_types = ()
    evaluators = {"validation": Validation}
    commands = {"generate": Generate, "export": ExportDecoder}
    methods = {"generate": Method(generate, warm_up)}

    sample_images: Natural = 4
    """Number of validation images whose lower half each evaluation completes for the report; 0 = none."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(False, "texts", "sample_prompt", "sample_tokens")

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        super().check_corpus(model, corpus)
        palette = corpus.processor
        if not isinstance(palette, Palette):
            raise DataError(f"a language model of images needs images, but the data has a {type(palette).__name__}")
        if model.max_length is not None and model.max_length < palette.pixels:
            raise DataError(
                f"images have {palette.pixels} pixels, but the model reads at most {model.max_length}; set "
                f"--model.{model.length_field.replace('_', '-')} {palette.pixels}, or a smaller --data.resize"
            )
