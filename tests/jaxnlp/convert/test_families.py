import importlib

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from jaxnlp.convert.families import families_in


@pytest.mark.parametrize("kind", ["encoders", "decoders", "encoder_decoders", "image_encoders"])
def test_each_model_type_is_that_of_transformers_and_the_name_of_its_file(kind):
    package = f"jaxnlp.convert.{kind}"
    found = families_in(package)
    assert set(found) <= set(CONFIG_MAPPING_NAMES)
    for model_type, family in found.items():
        assert importlib.import_module(f"{package}.{model_type.replace('-', '_')}").FAMILY is family
