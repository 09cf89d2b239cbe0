"""DeiT: ViT with a distillation token after the class token, and a class with a head for each."""

from jaxnlp.convert.image_encoders.vit import FAMILY as VIT
from jaxnlp.convert.settings import of_model_type

TEACHER = "ForImageClassificationWithTeacher"

FAMILY = VIT._replace(
    title="DeiT",
    base="deit",
    architectures=("DeiTModel",),
    heads={**VIT.heads, TEACHER: ("cls_classifier", "distillation_classifier")},
    distillation=("token", "token", "head"),
    rules=of_model_type(VIT.rules, "deit"),
    preprocessor="DeiTImageProcessor",
)
