"""A T5, a BART and a Marian of Transformers as translators, and translators as one of them."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
import torch
import transformers

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert.encoder_decoders import families
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export.encoder_decoders import ExportEncoderDecoder
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.tasks.translation import Translation
from jaxnlp.tasks.translation.search import max_target_length
from tests import bart_folders, marian_folders
from tests.encoder_decoder_folders import write_folder
from tests.encoder_folders import TEXTS
from tests.processors import translating

SOURCES = ["The cat sat", "Gatos y perros <extra_id_1>", "A big dog ate a fish in Rome"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of a tiny T5, its model and its tokenizer in Transformers, and ours."""
    folder = tmp_path_factory.mktemp("tiny") / "t5"
    model, tokenizer = write_folder(folder, feed_forward_proj="gated-gelu", vocab_size=99, untied=True)
    return folder, model, tokenizer, jaxnlp.load_pretrained(folder)


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    """The same of a tiny BART, which ends some targets early."""
    folder = tmp_path_factory.mktemp("tiny") / "bart"
    model, tokenizer = bart_folders.write_folder(folder, vocab_size=341)
    model.final_logits_bias[:, 2] = 2.5
    model.save_pretrained(folder)
    return folder, model, tokenizer, jaxnlp.load_pretrained(folder)


def written(model, tokenizer, sources=SOURCES, *, end=1, silent=(0,), **options):
    """The texts that Transformers writes, of at most as many tokens as ours."""
    texts = []
    for source in sources:
        batch = tokenizer([source], return_tensors="pt")
        longest = max_target_length(batch["input_ids"].shape[1])
        with torch.no_grad():
            (ids,) = model.generate(**batch, max_new_tokens=longest, do_sample=False, **options).tolist()
        ids = ids[1:]
        ids = ids[: ids.index(end) if end in ids else None]
        texts.append(tokenizer.decode([one for one in ids if one not in (*silent, tokenizer.unk_token_id)]))
    return texts


@pytest.mark.thorough
def test_greedy_texts_are_those_of_transformers_token_for_token(tiny):
    _, model, tokenizer, run = tiny
    found = run.translate(SOURCES, num_beams=1)
    assert found == written(model, tokenizer)
    assert len(set(found)) == 3


@pytest.mark.thorough
def test_beams_are_those_of_transformers_with_its_length_penalty(tiny):
    _, model, tokenizer, run = tiny
    beams = {}
    for penalty in (0.0, 0.8, 3.0):
        found = run.translate(SOURCES, num_beams=3, length_penalty=penalty, length_offset=0.0)
        assert found == written(model, tokenizer, num_beams=3, length_penalty=penalty, early_stopping="never")
        beams[penalty] = found
    assert beams[0.0] != beams[3.0]


FORCED = [
    {"forced_bos_token_id": 91, "forced_eos_token_id": 2},
    {"forced_bos_token_id": None, "forced_eos_token_id": None},
    {"forced_bos_token_id": 0, "forced_eos_token_id": 2},
    {"forced_bos_token_id": None, "forced_eos_token_id": None, "min_length": 9, "renormalize_logits": True},
    {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "min_length": 3, "min_new_tokens": 7},
]


@pytest.mark.thorough
@pytest.mark.parametrize("forced", FORCED, ids=str)
def test_texts_and_beams_of_a_bart_are_those_of_transformers_token_for_token(forced, bart, tmp_path):
    folder, model, tokenizer, _ = bart
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for name, value in ({"min_length": 0, "min_new_tokens": None, "renormalize_logits": False} | forced).items():
        setattr(model.generation_config, name, value)
    model.generation_config.save_pretrained(tmp_path)
    run, sources = jaxnlp.load_pretrained(tmp_path), [*SOURCES, TEXTS[3], TEXTS[4]]
    expected = functools.partial(written, model, tokenizer, sources, end=2, silent=(0, 1))
    greedy = run.translate(sources, num_beams=1)
    assert greedy == expected()
    assert len(set(greedy)) > 2
    beams = {"num_beams": 3, "length_penalty": 0.0}
    assert run.translate(sources, **beams) == expected(**beams, early_stopping="never")
    found = run.translate(sources, **beams, no_repeat_ngram=2)
    assert found == expected(**beams, early_stopping="never", no_repeat_ngram_size=2)


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """The same of a tiny Marian, which prefers padding and ends some targets early."""
    folder = tmp_path_factory.mktemp("tiny") / "marian"
    model, tokenizer = marian_folders.write_folder(folder, scale_embedding=False)
    model.final_logits_bias[:, [0, -1]] = torch.tensor([3.0, 12.0])
    model.save_pretrained(folder)
    return folder, model, tokenizer, jaxnlp.load_pretrained(folder)


@pytest.mark.thorough
@pytest.mark.parametrize(("forced", "renormalised"), [(0, False), (None, True)])
def test_texts_and_beams_of_a_marian_are_those_of_transformers_token_for_token(forced, renormalised, marian, tmp_path):
    folder, model, tokenizer, _ = marian
    model.generation_config.renormalize_logits = renormalised
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model.generation_config.forced_eos_token_id = forced
    model.generation_config.save_pretrained(tmp_path)
    run, sources = jaxnlp.load_pretrained(tmp_path), [*SOURCES, TEXTS[3], ">>fra<< " + TEXTS[4]]
    expected = functools.partial(written, model, tokenizer, sources, end=0, silent=())
    greedy = run.translate(sources, num_beams=1)
    assert greedy == expected()
    assert len(set(greedy)) > 2
    assert greedy != expected(bad_words_ids=[[1]])  # padding would be written
    beams = {"num_beams": 3, "length_penalty": 0.0}
    assert run.translate(sources, **beams) == expected(**beams, early_stopping="never")


def assert_exported_with_its_texts(run, kind, tmp_path, capsys, **ids):
    """The run in tmp_path / "run" goes out as this class, which writes the run's texts. Args: ids: see `written`."""
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert f"transformers.{kind}.from_pretrained reads it" in capsys.readouterr().out
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    exact = dataclasses.replace(run, model=dataclasses.replace(run.model.config, compute=EXACT).build(run.processor))
    found = exact.translate(SOURCES, num_beams=1)
    assert found == written(theirs, tokenizer, **ids)
    assert jaxnlp.load_pretrained(tmp_path / "out").translate(SOURCES, num_beams=1) == found
    assert main(["attention", str(tmp_path / "out"), "The cat", "--out", str(tmp_path / "page.html")]) == 0


@pytest.mark.thorough  # like a T5
def test_a_marian_is_trained_further_and_exported_with_the_texts_of_the_run(marian, tmp_path, capsys):
    folder, _, _, before = marian
    run = trained_further(folder, tmp_path)
    assert run.processor == before.processor
    assert (run.model.config.dropout_rate, run.model.config.sines_first) == (0.1, True)
    changed = np.asarray(run.params["output_bias"]) - np.asarray(before.params["output_bias"])
    assert 0.0 < np.abs(changed).max() < 1e-2
    assert_exported_with_its_texts(run, "MarianMTModel", tmp_path, capsys, end=0, silent=())


def trained_further(folder, place):
    """A run of three steps that started from the weights of a folder."""
    pairs = [f"say {one} {other}\t{other} {one}" for one in TEXTS[0].split() for other in TEXTS[1].split()]
    (place / "pairs.tsv").write_text("\n".join(pairs))
    options = ["--data.lengths", "24", "--total-steps", "3", "--evaluate-every-steps", "3"]
    options += ["--checkpoint-every-steps", "3", "--optimizer.schedule.warmup", "0", "--init-from", str(folder)]
    files = ["--data.train", str(place / "pairs.tsv"), "--workdir", str(place / "run")]
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        assert main(["train", "t5_finetune", *files, *options]) == 0
    return jaxnlp.load_run(place / "run")


@pytest.mark.thorough  # like a T5
def test_a_bart_is_trained_further_and_exported_with_the_texts_of_the_run(bart, tmp_path, capsys):
    folder, _, _, before = bart
    run = trained_further(folder, tmp_path)
    assert run.processor == before.processor
    assert run.processor.encode_target("the cat")[::3] == [0, 2]
    assert (run.model.config.dropout_rate, run.model.config.context_length) == (0.1, 130)
    for name in ("source_positions", "target_positions", "output_bias"):
        changed = np.asarray(run.params[name]) - np.asarray(before.params[name])
        assert 0.0 < np.abs(changed).max() < 1e-2
    assert_exported_with_its_texts(run, "BartForConditionalGeneration", tmp_path, capsys, end=2, silent=(0, 1))


def test_attention_is_that_of_transformers(tiny):
    folder, _, tokenizer, run = tiny
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    source, target = tokenizer(["The cat sat", "the dog"])["input_ids"]
    with torch.no_grad():
        theirs = model(
            input_ids=torch.tensor([source]),
            decoder_input_ids=torch.tensor([[0, *target[:-1]]]),
            output_attentions=True,
        )
    expected = {
        "encoder": theirs.encoder_attentions,
        "decoder": theirs.decoder_attentions,
        "cross-attention": theirs.cross_attentions,
    }
    maps = {each.name: each.weights for each in run.attend("The cat sat", "the dog").maps}
    assert maps.keys() == expected.keys()
    for name, weights in expected.items():
        np.testing.assert_allclose(maps[name], torch.stack(weights)[:, 0].numpy(), atol=1e-5, err_msg=name)


@pytest.mark.thorough
def test_the_verbs_work_on_the_folder(tiny, tmp_path, capsys):
    folder, _, _, run = tiny
    assert main(["translate", str(folder), *SOURCES, "--num-beams", "1", "--json"]) == 0
    rows = [json.loads(line)["translations"][0]["text"] for line in capsys.readouterr().out.splitlines()]
    assert rows == run.translate(SOURCES, num_beams=1)
    assert main(["attention", str(folder), "The cat", "--out", str(tmp_path / "page.html")]) == 0
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    assert "transformers.T5ForConditionalGeneration.from_pretrained reads it" in capsys.readouterr().out
    assert jaxnlp.load_pretrained(tmp_path / "out").translate(SOURCES, num_beams=1) == rows
    assert main(["generate", str(folder), "--prompt", "The"]) == 2
    assert "has no verb 'generate'" in capsys.readouterr().err


@pytest.mark.thorough
def test_weights_are_trained_further_on_pairs_and_exported_with_the_logits_of_the_run(tiny, tmp_path, capsys):
    folder, _, _, before = tiny
    pairs = [f"say {one} {other}\t{other} {one}" for one in TEXTS[0].split() for other in TEXTS[1].split()]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs))
    options = ["--data.lengths", "24", "--total-steps", "3", "--evaluate-every-steps", "3"]
    options += ["--checkpoint-every-steps", "3", "--optimizer.schedule.warmup", "0"]
    files = [
        "--init-from",
        str(folder),
        "--data.train",
        str(tmp_path / "pairs.tsv"),
        "--workdir",
        str(tmp_path / "run"),
    ]
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        assert main(["train", "t5_finetune", *files, *options]) == 0
    assert "encoder and decoder from" in capsys.readouterr().out
    run = jaxnlp.load_run(tmp_path / "run")
    assert run.processor == before.processor
    assert (run.model.config.dropout_rate, run.model.config.context_length) == (0.1, 512)
    for side in ("encoder", "decoder"):
        changed = np.asarray(run.params[side]["relative_bias"]) - np.asarray(before.params[side]["relative_bias"])
        assert 0.0 < np.abs(changed).max() < 1e-2
    with jax.numpy_dtype_promotion("standard"):  # the same data, in a new process
        assert main(["evaluate", str(tmp_path / "run"), "translation"]) == 0
    assert "bleu" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    batch = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(TEXTS[:2], padding=True, return_tensors="pt")
    inputs = np.array([[0, 5, 6], [0, 7, 8]], np.int32)
    with torch.no_grad():
        expected = theirs(**batch, decoder_input_ids=torch.tensor(inputs)).logits.numpy()
    exact = dataclasses.replace(run.model.config, compute=EXACT).build(run.processor)
    read = run.processor(TEXTS[:2])
    assert read["source"].tolist() == batch["input_ids"].tolist()
    found = jax.jit(exact.apply)({"params": run.params}, read["source"], inputs, read["source_mask"])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_t5_that_was_pretrained_further_by_span_corruption_is_exported(tiny, tmp_path):
    _, _, _, run = tiny
    TextToText().commands["export"](tmp_path / "out")(dataclasses.replace(run, task=TextToText()))
    again = jaxnlp.load_pretrained(tmp_path / "out")
    jax.tree.map(np.testing.assert_array_equal, again.params, jax.device_get(run.params))


@pytest.mark.parametrize(
    "config", [EncoderDecoderConfig(num_layers=1, num_heads=2, width=4), AttentionLSTMConfig()], ids=["words", "lstm"]
)
def test_what_is_no_t5_is_not_exported(config, tmp_path):
    run = Trained(Translation(), config.build(translating(9)), {}, translating(9))
    with pytest.raises(ValueError, match=r"Transformers has no class for its model, .*; give --format jax"):
        ExportEncoderDecoder(tmp_path / "out")(run)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"Transformers' Marian does not support model\.norm = pre, model\.sines_first = False"),
        ({**families()["t5"].fixed, "use_bias": True}, r"Transformers' T5 does not support model\.use_bias = True"),
        ({**families()["bart"].fixed, "norm": "pre"}, r"Transformers' BART does not support model\.norm = pre"),
        ({**families()["bart"].fixed, "head_width": 3}, r"BART does not support model\.head_width = 3"),
    ],
    ids=str,
)
def test_other_transformers_are_refused_by_the_family_that_has_most_of_their_options(changes, message, tiny, tmp_path):
    _, _, _, run = tiny
    config = EncoderDecoderConfig(num_layers=1, num_heads=2, width=4, embeddings="shared", **changes)
    other = dataclasses.replace(run, model=config.build(run.processor))
    with pytest.raises(WeightsError, match=message):
        ExportEncoderDecoder(tmp_path / "out")(other)
