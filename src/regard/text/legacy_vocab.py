"""Tokenizers from vocabulary files that predate `tokenizer.json`.

In: GPT-2's and RoBERTa's vocab.json + merges.txt (also under their first names, encoder.json + vocab.bpe), BERT's
vocab.txt. Out: the same pipelines their models were trained with. Which one a file needs is not in the file, so it is
inferred from the tokenizer class or model type in the configuration.
"""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import TokenizerError
from regard.text.pretokenizers import SPLITS
from regard.text.reading import guarded, read_text
from regard.text.tokenizer_checks import check_lengths, check_model

_ROBERTA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_END = "<|endoftext|>"
_DEFAULTS = {
    "gpt2": {"bos": _END, "eos": _END, "unk": _END},
    "qwen2": {"eos": _END, "unk": _END, "pad": _END},
    "roberta": _ROBERTA,
    "bert": _BERT,
    "llama": {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
}
_LAYOUTS = {
    "gpt2": ("gpt2", "gpt_neo", "gptj", "opt", "codegen"),
    "qwen2": ("qwen2", "qwen3"),
    "roberta": ("roberta", "bart", "longformer", "led"),
    "bert": ("bert", "distilbert", "electra", "mobilebert", "convbert", "layoutlm", "retribert"),
    "llama": ("llama",),
}
_LAYOUT_OF = {name.replace("_", ""): layout for layout, names in _LAYOUTS.items() for name in names}
_ANY_CLASS = ("pretrainedtokenizerfast", "tokenizersbackend")


def layout_of(class_name: Any, model_type: Any) -> str | None:
    """Which known layout a tokenizer class (or, without one, a model type) uses; None without either.

    An unknown name is returned as it is: it matters only if the vocabulary has to be rebuilt.
    """
    for name in (class_name, model_type):
        if isinstance(name, str) and name.lower() not in _ANY_CLASS:
            key = name.lower().removesuffix("fast").removesuffix("tokenizer").replace("_", "")
            return _LAYOUT_OF.get(key, name)
        if isinstance(name, str):
            return None
    return None


def default_specials(layout: str | None) -> dict[str, str]:
    """The special tokens a layout has when its configuration does not name them."""
    return dict(_DEFAULTS.get(layout or "", {}))


def guess_layout(vocab: dict[str, Any]) -> str:
    """RoBERTa's byte-level vocabularies have <s> and </s>, GPT-2's <|endoftext|>."""
    return "roberta" if {"<s>", "</s>"} <= vocab.keys() and _END not in vocab else "gpt2"


def byte_level(
    vocab_file: Path, vocab: dict[str, Any], merges_file: Path, layout: str, config: dict[str, Any]
) -> tokenizers.Tokenizer:
    """Byte-level BPE from a vocabulary, read from `vocab_file`, and its merges."""
    if layout not in ("gpt2", "qwen2", "roberta"):
        raise _unknown_layout(vocab_file, layout)
    merges = _read_merges(merges_file)
    check_model({"vocab": vocab, "merges": merges}, merges_file)
    prefix = config.get("add_prefix_space") is True
    raw = guarded(
        str(vocab_file), lambda: tokenizers.Tokenizer(models.BPE(vocab, [(left, right) for left, right in merges]))
    )
    if layout == "qwen2":
        raw.normalizer = normalizers.NFC()
        raw.pre_tokenizer = SPLITS["qwen2"].pre_tokenizer(add_prefix_space=prefix)
    else:
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    raw.decoder = decoders.ByteLevel()
    return raw


def _read_merges(file: Path) -> list[list[str]]:
    lines = read_text(file).split("\n")
    if lines[0].startswith("#version"):
        del lines[0]
    return [line.split(" ") for line in lines if line.strip()]


def wordpiece(file: Path, layout: str, unknown: str, config: dict[str, Any]) -> tokenizers.Tokenizer:
    """BERT's WordPiece (Devlin et al. 2019) from a list of pieces, one per line."""
    if layout != "bert":
        raise _unknown_layout(file, layout)
    lines = read_text(file).removesuffix("\n").split("\n")
    check_lengths(lines, file)
    vocab = {line: i for i, line in enumerate(lines)}
    strip_accents = config.get("strip_accents")
    raw = guarded(str(file), lambda: tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown)))
    raw.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        strip_accents=strip_accents if isinstance(strip_accents, bool) else None,
        lowercase=config.get("do_lower_case") is not False,
    )
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix="##")
    return raw


def set_post_processor(
    raw: tokenizers.Tokenizer, layout: str | None, specials: dict[str, str], config: dict[str, Any], where: str
) -> None:
    """Set the post-processor, which adds special tokens: `[CLS] … [SEP]`, `<s> … </s>`, or as configured."""
    vocab = raw.get_vocab(with_added_tokens=True)
    ends = {role: (token, vocab[token]) for role, token in specials.items()}
    wordpiece = type(raw.model).__name__ == "WordPiece"
    for role in ("cls", "sep") if wordpiece or layout == "roberta" else ():
        if role not in ends:
            raise TokenizerError(f"{where} has no {role} token, which its kind of tokenizer puts around every text.")
    if wordpiece:
        raw.post_processor = bert_post_processor(ends["cls"], ends["sep"])
    elif layout == "roberta":
        raw.post_processor = processors.RobertaProcessing(
            ends["sep"], ends["cls"], trim_offsets=True, add_prefix_space=config.get("add_prefix_space") is True
        )
    else:
        bos = ends.get("bos") if config.get("add_bos_token") is True else None
        eos = ends.get("eos") if config.get("add_eos_token") is True else None
        raw.post_processor = bos_eos_post_processor(bos, eos)


def bert_post_processor(cls: tuple[str, int], sep: tuple[str, int]) -> processors.PostProcessor:
    """`[CLS] a [SEP]`, and `[CLS] a [SEP] b [SEP]` with token types 0 and 1."""
    return processors.TemplateProcessing(
        single=[f"{cls[0]}:0", "$A:0", f"{sep[0]}:0"],
        pair=[f"{cls[0]}:0", "$A:0", f"{sep[0]}:0", "$B:1", f"{sep[0]}:1"],
        special_tokens=[cls, sep],
    )


def bos_eos_post_processor(bos: tuple[str, int] | None, eos: tuple[str, int] | None) -> processors.PostProcessor:
    """BOS and EOS around each text, where given."""
    single = [*([f"{bos[0]}:0"] if bos else []), "$A:0", *([f"{eos[0]}:0"] if eos else [])]
    second = [*([f"{bos[0]}:1"] if bos else []), "$B:1", *([f"{eos[0]}:1"] if eos else [])]
    ends = {end for end in (bos, eos) if end}
    return processors.TemplateProcessing(single=single, pair=single + second, special_tokens=sorted(ends))


def _unknown_layout(file: Path, layout: str) -> TokenizerError:
    return TokenizerError(
        f"{file} belongs to a {layout} tokenizer, whose way of splitting text is not known here; "
        "add a tokenizer.json to the directory."
    )
