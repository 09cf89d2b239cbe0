"""Decoders of Transformers as language models, and language models as decoders of Transformers."""

import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.models import parameter_shapes
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.tasks.language_model.export_command import ExportDecoder
from jaxnlp.text.byte_pairs import BytePairs
from tests.decoder_folders import write_folder
from tests.encoder_folders import TEXTS
from tests.processors import sized

PROMPTS = ["The cat", "Gatos y perros", "A big dog ate a fish in Rome"]


@pytest.fixture(
    scope="module",
    params=[
        "gpt2",
        "llama",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("mistral", "qwen2", "qwen3")),
    ],
)
def tiny(request, tmp_path_factory):
    """A folder of a tiny decoder, its model and its tokenizer in Transformers, and ours."""
    folder = tmp_path_factory.mktemp("tiny") / request.param
    model, tokenizer = write_folder(folder, model_type=request.param)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    return folder, model, tokenizer, jaxnlp.load_pretrained(folder)


def continued(tiny, **options):
    """The prompts with the continuations of Transformers, which pads them on the left."""
    _, model, tokenizer, run = tiny
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    assert not batch["attention_mask"].all()
    with torch.no_grad():
        rows = model.generate(**batch, max_new_tokens=12, pad_token_id=tokenizer.pad_token_id, **options)
    new = rows[:, batch["input_ids"].shape[1] :].tolist()
    ended = [ids[: ids.index(tokenizer.eos_token_id) + 1] if tokenizer.eos_token_id in ids else ids for ids in new]
    return [prompt + run.processor.decode(ids) for prompt, ids in zip(PROMPTS, ended, strict=True)]


@pytest.mark.thorough
def test_greedy_continuations_are_those_of_transformers_token_for_token(tiny):
    _, _, tokenizer, run = tiny
    found = run.generate(PROMPTS, max_new_tokens=12, temperature=0.0, stop=tokenizer.eos_token)
    assert found == continued(tiny, do_sample=False)
    assert len(set(found)) == 3


@pytest.mark.sweep(1)
@pytest.mark.parametrize("penalty", [0.0, 1.5])
def test_beams_are_those_of_transformers_with_its_length_penalty(tiny, penalty):
    _, _, tokenizer, run = tiny
    ours = {"length_penalty": penalty} | ({"length_offset": 0.0} if penalty else {})
    found = run.generate(PROMPTS, max_new_tokens=12, num_beams=3, stop=tokenizer.eos_token, **ours)
    options = {"num_beams": 3, "do_sample": False, "length_penalty": penalty, "early_stopping": "never"}
    assert found == continued(tiny, **options)


def test_attention_is_that_of_transformers(tiny):
    folder, _, tokenizer, run = tiny
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    batch = tokenizer([PROMPTS[2]], return_tensors="pt")
    with torch.no_grad():
        expected = torch.stack(model(**batch, output_attentions=True).attentions)[:, 0]
    (maps,) = run.attend(PROMPTS[2]).maps
    np.testing.assert_allclose(maps.weights, expected.numpy(), atol=1e-5)
    assert maps.rows[0] == (tokenizer.bos_token if folder.name in ("llama", "mistral") else "A")


@pytest.mark.sweep(1)
def test_perplexity_is_that_of_transformers(tiny):
    _, model, tokenizer, run = tiny
    batch = tokenizer([PROMPTS[2]], return_tensors="pt")
    with torch.no_grad():
        expected = model(**batch, labels=batch["input_ids"]).loss.exp().item()
    np.testing.assert_allclose(run.perplexity(PROMPTS[2]), expected, rtol=1e-4)
    assert run.perplexity(" and a cat", given=PROMPTS[2]) > 1.0


@pytest.mark.sweep(1)
def test_the_verbs_work_on_the_folder(tiny, tmp_path, capsys):
    folder, model, _, run = tiny
    assert main(["generate", str(folder), "--prompt", "The", "--max-new-tokens", "5", "--temperature", "0"]) == 0
    # This Mistral writes bytes, the first one a character, which the next ones make a part of none.
    assert capsys.readouterr().out == run.generate("The", max_new_tokens=5, temperature=0.0) + "\n"
    assert main(["attention", str(folder), "The cat", "--out", str(tmp_path / "page.html")]) == 0
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    assert f"transformers.{type(model).__name__}.from_pretrained reads it" in capsys.readouterr().out
    assert jaxnlp.load_pretrained(tmp_path / "out").generate("The", temperature=0.0, max_new_tokens=3).startswith("The")
    assert main(["translate", str(folder), "The"]) == 2
    assert "has no verb 'translate'" in capsys.readouterr().err


@pytest.mark.thorough
def test_weights_are_trained_further_on_a_text_and_exported_with_the_logits_of_the_run(tiny, tmp_path, capsys):
    folder, _, _, before = tiny
    recipe = "gpt2_finetune" if folder.name == "gpt2" else "llama_finetune"
    (tmp_path / "text.txt").write_text("\n".join(TEXTS * 12))
    options = ["--data.sequence-length", "16", "--total-steps", "3", "--evaluate-every-steps", "3"]
    options += ["--checkpoint-every-steps", "3", "--task.sample-prompt", "None", "--optimizer.schedule.warmup", "0"]
    files = ["--init-from", str(folder), "--data.path", str(tmp_path / "text.txt"), "--workdir", str(tmp_path / "run")]
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        assert main(["train", recipe, *files, *options]) == 0
    assert "decoder from" in capsys.readouterr().out
    run = jaxnlp.load_run(tmp_path / "run")
    assert run.processor == before.processor
    assert run.model.config.residual_dropout_rate == (0.1 if recipe == "gpt2_finetune" else 0.0)
    changed = np.asarray(run.params["tokens"]["embedding"]) - np.asarray(before.params["tokens"]["embedding"])
    assert 0.0 < np.abs(changed).max() < 1e-2
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    batch = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")([TEXTS[0]], return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**batch).logits.numpy()
    exact = dataclasses.replace(run.model.config, compute=EXACT).build(run.processor)
    found = jax.jit(exact.apply)({"params": run.params}, run.processor.encode(TEXTS[0])[None])
    np.testing.assert_allclose(found, expected, atol=1e-5)


CONFIG = GPTConfig(num_layers=1, num_heads=2, width=4, context_length=8)
LEARNED = BytePairs.of(["a"], 256)
LLAMA = LlamaConfig(num_layers=1, num_heads=2, width=4, context_length=8, qkv_bias=True, head_norm=True)


@pytest.mark.parametrize(
    ("config", "processor", "message"),
    [
        (CONFIG, sized(5), "only a vocabulary of byte-level BPE can be exported with a GPT, got a "),
        (LLAMA, BytePairs.of(["a"], 256), r"Qwen2 does not support model\.head_norm = True"),
        (dataclasses.replace(LLAMA, head_norm=False), LEARNED, "every Qwen2 a tokenizer of its own class"),
        (RecurrentLMConfig(), sized(5), "no class for its model, a RecurrentLM; give --format jax"),
        (dataclasses.replace(CONFIG, use_bias=False), BytePairs.of(["a"], 256), r"not support model\.use_bias = False"),
        (SynthesizerConfig(**vars(CONFIG)), BytePairs.of(["a"], 256), "does not support a SynthesizerConfig"),
    ],
    ids=["characters", "llama", "qwen2", "recurrent", "no bias", "synthesizer"],
)
def test_what_is_no_gpt2_is_not_exported(config, processor, message, tmp_path):
    model = config.build(processor)
    shapes = parameter_shapes(model, *config.inputs(processor))
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    run = Trained(LanguageModel(), model, params, processor)
    with pytest.raises(ValueError, match=message):
        ExportDecoder(tmp_path / "out")(run)
    assert not list(tmp_path.iterdir())
