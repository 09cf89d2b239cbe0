"""Folders of a tiny Marian and its tokenizer, made by Transformers with random weights."""

import json

import sentencepiece
import torch
import transformers

from tests.bart_folders import SIZES
from tests.encoder_folders import TEXTS


def save_tokenizer(folder, *, kinds=("unigram", "unigram"), separate=False, **options):
    """Writes a tokenizer as Transformers saves it, and returns it: sources and targets have other pieces, and some
    pieces of each have no id. Args: kinds: of the two models; separate: whether each has a table; options: of the
    class."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = []
    # With two tables the id of padding in that of sources is one of both.
    texts_of = (TEXTS[2:], TEXTS) if separate else (TEXTS, TEXTS[2:])
    for name, kind, texts in zip(("source", "target"), kinds, texts_of, strict=True):
        with (folder / f"{name}.spm").open("wb") as target:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(texts * 4),
                model_writer=target,
                model_type=kind,
                vocab_size=130,
                hard_vocab_limit=False,
                character_coverage=0.98,
                minloglevel=2,
            )
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces.append([model.id_to_piece(index) for index in range(3, len(model)) if index % 29])
    names = (
        {"vocab.json": pieces[0], "target_vocab.json": pieces[1]}
        if separate
        else {"vocab.json": [*pieces[0], *pieces[1]]}
    )
    for name, own in names.items():
        table = {token: index for index, token in enumerate(dict.fromkeys(["</s>", "<unk>", ">>fra<<", *own, "<pad>"]))}
        (folder / name).write_text(json.dumps(table))
    files = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    files |= {"target_vocab_file": "target_vocab.json"} if separate else {}
    options |= {"separate_vocabs": True} if separate else {}
    made = transformers.MarianTokenizer(**{name: str(folder / file) for name, file in files.items()}, **options)
    made.save_pretrained(folder)
    return made


def make_model(size, **changes):
    """A Marian of Transformers with parameters so large that all parts count. Args: size: V, of sources if targets have
    a table of their own; changes: of its config."""
    torch.manual_seed(0)
    ids = {"vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0}
    options = {"activation_function": "swish", "scale_embedding": True, "forced_eos_token_id": 0}
    config = transformers.MarianConfig(**SIZES | ids | options | changes)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = (0.2 if name != "model.shared.weight" or config.scale_embedding else 0.5) * torch.randn(
                tensor.shape
            )
            if tensor.requires_grad:
                tensor.copy_(tensor + noise if "norm" in name else noise)
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    model.generation_config.bad_words_ids = [[size - 1]]
    return model


def write_folder(folder, **changes):
    """A folder of a tiny model and its tokenizer; returns both. Args: changes: of its config."""
    tokenizer = save_tokenizer(folder)
    model = make_model(len(tokenizer), **changes)
    model.save_pretrained(folder)
    return model, tokenizer


def write_two_tables(folder, **changes):
    """The same with a vocabulary and a table of embeddings of each side, the larger one of targets."""
    tokenizer = save_tokenizer(folder, separate=True)
    sizes = len(tokenizer.get_src_vocab()), len(tokenizer.target_encoder)
    tables = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": sizes[1]}
    model = make_model(sizes[0], **tables | changes)
    model.save_pretrained(folder)
    return model, tokenizer
