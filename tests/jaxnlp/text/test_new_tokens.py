import pytest
import transformers

from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.new_tokens import with_added_tokens
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from tests import bart_folders, decoder_folders, encoder_decoder_folders, encoder_folders

NEW = ("covidix", " Rome's", "猫坐猫", "<code>", "zZq")
SENTENCES = ["The covidix cats covidixes in Rome's <code>  zZq 猫坐猫 zzq.", "zZq"]
ENCODERS = ["bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert"]


def written(family, folder):
    """A tokenizer as Transformers has it, with our own of the same folder."""
    if family in ENCODERS:
        theirs = encoder_folders.save_tokenizer(family, folder)
        return theirs, EncoderVocabulary.of_folder(folder)
    if family in decoder_folders.CLASSES:
        theirs = decoder_folders.save_tokenizer(folder, family)
        (folder / "config.json").write_text(f'{{"model_type": "{family}"}}')
        return theirs, BytePairs.of_folder(folder)
    made = encoder_decoder_folders if family == "t5" else bart_folders
    return made.save_tokenizer(folder), PretrainedSubwords.of_folder(folder, 0)


@pytest.mark.parametrize("family", [*ENCODERS, "gpt2", "llama", "qwen2", "t5", "bart"])
def test_new_tokens_have_the_ids_of_transformers_also_when_they_are_written(family, tmp_path):
    theirs, ours = written(family, tmp_path / "theirs")
    assert theirs.add_tokens(list(NEW)) == len(NEW)
    more = ours.with_tokens(NEW)
    assert more.size == len(theirs) == ours.size + len(NEW)
    (tmp_path / "ours").mkdir()
    more.save(tmp_path / "ours", max_length=40)
    if (tmp_path / "theirs" / "config.json").is_file():
        (tmp_path / "ours" / "config.json").write_text((tmp_path / "theirs" / "config.json").read_text())
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for sentence in SENTENCES:
        ids = theirs(sentence, add_special_tokens=False)["input_ids"]
        assert list(more.encode(sentence))[-len(ids) :] == ids
        assert set(ids) & {*range(ours.size, more.size)}
        assert again(sentence)["input_ids"] == theirs(sentence)["input_ids"]
    assert type(more).from_json(more.to_json()) == more
    assert ours.size == more.size - len(NEW)  # unchanged


def test_a_text_that_is_no_new_token_is_refused(tmp_path):
    tokenizer = written("bert", tmp_path)[1].tokenizer
    with pytest.raises(ValueError, match=r"has these tokens already: 'cat', '\[SEP\]'"):
        with_added_tokens(tokenizer, ["cat", "new", "[SEP]"])
    # The tokenizers library may take either of the two.
    with pytest.raises(ValueError, match=r"does not read '(new|NEW)' as one token"):
        with_added_tokens(tokenizer, ["new", "NEW"])
