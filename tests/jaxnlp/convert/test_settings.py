"""Every setting that Transformers and sentence-transformers write for a BERT is known by name."""

import inspect
import json
import re

import pytest
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from jaxnlp.convert.decoders import families as decoder_families
from jaxnlp.convert.encoder_decoders import families as encoder_decoder_families
from jaxnlp.convert.encoders import families
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.image_encoders import families as image_families
from jaxnlp.convert.pretrained_encoder import read_pretrained
from jaxnlp.convert.settings import (
    MODULE,
    NORMALIZE,
    POOLING,
    POOLING_MODES,
    REFUSED_FILES,
    SENTENCE_MODEL,
    TRANSFORMER,
)

OLDER = re.findall(
    r"\w+",
    """
    return_dict output_hidden_states output_attentions torchscript torch_dtype use_bfloat16
    tf_legacy_loss pruned_heads tie_word_embeddings chunk_size_feed_forward is_encoder_decoder
    is_decoder cross_attention_hidden_size add_cross_attention tie_encoder_decoder max_length
    min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature
    top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
    return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens architectures
    finetuning_task id2label label2id tokenizer_class prefix bos_token_id pad_token_id eos_token_id
    sep_token_id decoder_start_token_id task_specific_params problem_type _name_or_path
    transformers_version gradient_checkpointing position_embedding_type use_cache classifier_dropout
    """,
)
"""What earlier versions of Transformers wrote for a BERT."""
ALL = {**families(), **decoder_families(), **encoder_decoder_families(), **image_families()}
MODELS = {name: family.rules for name, family in ALL.items()}
KNOWN = {
    **MODELS,
    "module": MODULE,
    "normalize": NORMALIZE,
    "pooling": POOLING,
    "sentence_model": SENTENCE_MODEL,
    "transformer": TRANSFORMER,
}


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_each_setting_has_one_rule(known):
    assert len(known.names) == len(set(known.names)) > 0


@pytest.mark.parametrize("model_type", MODELS)
def test_all_settings_of_transformers_config_are_known_and_its_defaults_are_supported(model_type):
    rules, config = MODELS[model_type], transformers.AutoConfig.for_model(model_type).to_dict()
    base = inspect.signature(transformers.PretrainedConfig.__init__).parameters.keys() - {"self"}
    own = {"position_embedding_type", "classifier_dropout"}
    older = set(OLDER) - (own if model_type not in families() or model_type == "distilbert" else set())
    assert rules.problems(config) == []
    assert (base | config.keys() | older) - set(rules.names) == set()


def test_all_settings_of_sentence_transformers_are_known(folder, tmp_path):
    theirs = SentenceTransformer(modules=[Transformer(str(folder)), Pooling(8), Normalize()], truncate_dim=4)
    theirs.save(str(tmp_path / "saved"))
    for name, known in (
        ("config.json", families()["bert"].rules),
        ("config_sentence_transformers.json", SENTENCE_MODEL),
        ("sentence_bert_config.json", TRANSFORMER),
        ("1_Pooling/config.json", POOLING),
        ("2_Normalize/config.json", NORMALIZE),
    ):
        assert known.problems(json.loads((tmp_path / "saved" / name).read_text())) == [], name
    for module in json.loads((tmp_path / "saved" / "modules.json").read_text()):
        assert MODULE.problems(module) == []
    given = inspect.signature(Transformer.__init__).parameters.keys() - {"self", "model_name_or_path"}
    assert (given | set(Transformer.config_keys)) - set(TRANSFORMER.names) == set()
    assert {*Pooling.config_keys, *Pooling.config_key_renames, *POOLING_MODES} == set(POOLING.names)
    assert set(POOLING_MODES.values()) == set(Pooling.POOLING_MODES)
    assert set(Normalize.config_keys) == set(NORMALIZE.names)


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_files_that_change_what_a_model_computes_are_refused(folder, name):
    (folder / name).write_text("{}")
    with pytest.raises(PretrainedError, match=rf"{name}: not supported: "):
        read_pretrained(folder)


def test_generation_settings_change_nothing(folder):
    (folder / "generation_config.json").write_text('{"num_beams": 4}')
    assert read_pretrained(folder).config.width == 8


def test_a_setting_that_nobody_knows_is_refused_by_name(folder):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"auto_map": {}, "window": 3}))
    with pytest.raises(PretrainedError, match=r"config.json .*unknown settings: auto_map, window; .*remove them"):
        read_pretrained(folder)
