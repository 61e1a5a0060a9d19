"""Tiny tokenizers of every kind, trained in a blink, for the tests of several folders."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "don't stop believing, we've got 1234 reasons to go on",
    "naïve café über straße, and then there were none",
    "the cat sat on the mat and the dog sat on the cat",
    "aaaa aaa aa a      b  bb   bbb",
] * 4
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHAT_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def byte_level(special: list[str] = CHAT_TOKENS, added: list[str] | None = None) -> Tokenizer:
    """GPT-2's pipeline."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=360, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    raw.add_tokens([AddedToken(token) for token in added or []])
    return raw


def wordpiece() -> Tokenizer:
    """BERT's pipeline, uncased."""
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer()
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece()
    raw.train_from_iterator(
        [*CORPUS, "it 's here . don ' t ! a b c d e n v r m s"],
        trainers.WordPieceTrainer(vocab_size=220, special_tokens=BERT_TOKENS, show_progress=False),
    )
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, raw.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return raw


def unigram() -> Tokenizer:
    """A T5-like pipeline, whose model has its control tokens in its own vocabulary."""
    raw = Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    special = ["<unk>", "</s>"]
    raw.train_from_iterator(
        [*CORPUS, "< / s >"],
        trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False),
    )
    return raw


def wordlevel() -> Tokenizer:
    """Whole words split at spaces only, so a control token typed as a word is one."""
    words = ["[UNK]", "</s>", *sorted({word for line in CORPUS for word in line.split()})]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_special_tokens(["[UNK]", "</s>"])
    return raw


def sentencepiece_model() -> sentencepiece.SentencePieceProcessor:
    """A BPE model with byte fallback, as Llama's is."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=written,
        model_type="bpe",
        vocab_size=380,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def sentencepiece_metadata(model: sentencepiece.SentencePieceProcessor) -> dict[str, Any]:
    """What a GGUF file says about such a model."""

    def kind(i: int) -> int:
        flags = (model.is_unknown(i), model.is_control(i), False, model.is_unused(i), model.is_byte(i))
        return next((n for n, flag in enumerate(flags, 2) if flag), 1)

    ids = range(model.vocab_size())
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [model.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": [kind(i) for i in ids],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def sentencepiece_charsmap() -> bytes:
    """SentencePiece's usual normalisation (NFKC and more), as its model files and Hugging Face's hold it."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, vocab_size=60, model_type="bpe", minloglevel=2
    )
    model = written.getvalue()
    # in Protocol Buffers: field 2 of the normaliser's settings, bytes after their length in three groups of seven bits
    at = next(i for i in range(len(model)) if model[i] == 0x12 and _varint(model[i + 1 : i + 4]) > 200_000)
    return model[at + 4 : at + 4 + _varint(model[at + 1 : at + 4])]


def _varint(digits: bytes) -> int:
    return sum((digit & 127) << 7 * n for n, digit in enumerate(digits))


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_vocab_and_merges(folder: Path, raw: Tokenizer, names: tuple[str, str] = ("vocab.json", "merges.txt")) -> None:
    """A tokenizer in GPT-2's two files."""
    model = json.loads(raw.to_str())["model"]
    write_json(folder / names[0], model["vocab"])
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / names[1]).write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")


def write_vocab_txt(folder: Path, raw: Tokenizer) -> None:
    vocab = raw.get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n", encoding="utf-8")
