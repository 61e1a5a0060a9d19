"""Pre-tokenizers of byte-level BPE vocabularies, by the names GGUF files use: how text is split before BPE merges.

In: a `tokenizer.ggml.pre` name. Out: a pre-tokenizer. BPE merges were learned within these pieces, so with another split
the same text gets other ids. Names and meanings are llama.cpp's; where several names mean the same split, the first of the
group is written.
"""

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|{_PUNCTUATION}"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_PUNCTUATION}"
)


@dataclass(frozen=True)
class Split:
    """A pre-tokenizer: any of `digits`, `regexes` and GPT-2's regex, in that order.

    `nfc`: an NFC normalizer runs first. `whole_words`: a piece that is itself a token is not built by merges. `adds_bos`:
    by default each text starts with the BOS token.
    """

    regexes: tuple[str, ...] = ()
    digits: bool = False
    gpt2: bool = False
    nfc: bool = False
    whole_words: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self, add_prefix_space: bool = False) -> pre_tokenizers.PreTokenizer:
        stages: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            stages.append(pre_tokenizers.Digits(individual_digits=True))
        stages += [pre_tokenizers.Split(Regex(regex), behavior="isolated") for regex in self.regexes]
        stages.append(pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=self.gpt2))
        return stages[0] if len(stages) == 1 else pre_tokenizers.Sequence(stages)

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


_GROUPS: dict[tuple[str, ...], Split] = {
    (
        "gpt-2",
        "phi-2",
        "jina-es",
        "jina-de",
        "jina-v2-es",
        "jina-v2-de",
        "gigachat",
        "a.x-4.0",
        "mellum",
        "modern-bert",
        "exaone4",
        "mpt",
        "olmo",
        "jais",
        "trillion",
        "granite-docling",
        "roberta-bpe",
        "jina-v1-en",
        "jina-v2-code",
    ): Split(gpt2=True),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"): Split(
        digits=True, gpt2=True
    ),
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"): Split(
        (_LLAMA3,), whole_words=True, adds_bos=True
    ),
    ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"): Split((_LLAMA3,)),
    ("qwen2",): Split((_QWEN2,), nfc=True),
    ("deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez", "kormo", "f2llmv2", "grok-2"): Split(
        (_QWEN2,)
    ),
    ("tekken",): Split((_TEKKEN,), whole_words=True, adds_bos=True),
    ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"): Split((_GPT4O,)),
    ("falcon",): Split((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    ("default",): Split((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}
SPLITS = {name: split for names, split in _GROUPS.items() for name in names}
# Those of the regexes that end a piece before every space that follows a non-space
WORD_SPLITS = frozenset({_GPT2, rf"{_GPT2}|\s+", _LLAMA3, _QWEN2, _TEKKEN, _GPT4O})
