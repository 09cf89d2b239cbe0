"""Folders of tiny decoders and their tokenizers, made by Transformers with random weights."""

import json

import sentencepiece
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.encoder_folders import TEXTS

END = "<|endoftext|>"
CLASSES = {"gpt2": "GPT2", "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""First parts of the names of classes."""


def save_tokenizer(folder, model_type="gpt2", **settings):
    """Writes the tokenizer of a tiny decoder, as Transformers saves it, and returns it. Args: settings: of its
    class."""
    folder.mkdir(parents=True, exist_ok=True)
    if model_type in ("llama", "mistral"):
        file = folder / "tokenizer.model"
        with file.open("wb") as target:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(TEXTS * 4),
                model_writer=target,
                model_type="bpe",
                vocab_size=360,
                hard_vocab_limit=False,
                byte_fallback=True,
                split_digits=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                minloglevel=2,
            )
        first = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(first | settings))
        made = transformers.LlamaTokenizer.from_pretrained(folder)
        file.unlink()
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(TEXTS, trainer)
        tokenizer.add_special_tokens([END])
        tokenizer.model.save(str(folder))
        merges = [tuple(line.split(" ")) for line in (folder / "merges.txt").read_text().split("\n")[1:] if line]
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        kind = transformers.GPT2Tokenizer if model_type == "gpt2" else transformers.Qwen2Tokenizer
        made = kind(vocab=tokenizer.get_vocab(), merges=merges, **settings)
    made.save_pretrained(folder)
    return made


SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
LLAMA_SIZES = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 40,
}
FURTHER = {
    "mistral": {"sliding_window": 3},
    "qwen2": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "qwen3": {"head_dim": 6},
}
"""Further settings of a tiny decoder."""


def config_of(model_type="gpt2", **changes):
    """The config of a tiny decoder."""
    sizes = dict(SIZES if model_type == "gpt2" else LLAMA_SIZES)
    sizes |= FURTHER.get(model_type, {})
    ends = {"bos_token_id": None, "eos_token_id": None}
    return transformers.AutoConfig.for_model(model_type, **sizes | ends | changes)


def make_model(kind="", model_type="gpt2", **changes):
    """A decoder of Transformers with parameters about ten times as large as initial ones, so that all parts count.

    Args:
      kind: its class, without the first part; "" = with the output layer.
      changes: of its config.
    """
    torch.manual_seed(0)
    kind = kind or ("LMHeadModel" if model_type == "gpt2" else "ForCausalLM")
    model = getattr(transformers, CLASSES[model_type] + kind)(config_of(model_type, **changes)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = 0.2 * torch.randn(tensor.shape)
            tensor.copy_(tensor + noise if "ln_" in name or "norm" in name else noise)
    return model


def write_folder(folder, kind="", model_type="gpt2", **changes):
    """A folder of a tiny decoder and its tokenizer; returns both. Arguments: those of `make_model`."""
    tokenizer = save_tokenizer(folder, model_type)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = make_model(kind, model_type, **{"vocab_size": len(tokenizer)} | ends | changes)
    model.save_pretrained(folder)
    return model, tokenizer
