"""A model directory → its tokenizer's files, read.

In: a directory in Hugging Face's layout. Out: `Found`, the arguments of `Tokenizer`. `tokenizer.json` is the definition if
it exists; for older models the tokenizer is rebuilt by `legacy_vocab`. The other files name the special tokens and contain
the chat template. Nothing here runs code from the directory: class names in it only select one of the known layouts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from regard.errors import TokenizerError, quoted
from regard.safe_open import LARGE, SMALL, parse_object, read_file
from regard.text import legacy_vocab
from regard.text.control_tokens import SPECIAL_ROLES
from regard.text.reading import guarded, read_object, read_text
from regard.text.tokenizer_checks import check_added, check_model, check_post_processor, check_stages

VERY_LONG = 10**12  # `model_max_length` is a huge sentinel where it was not set


@dataclass
class Found:
    """A directory's tokenizer: the arguments of `Tokenizer`."""

    raw: tokenizers.Tokenizer
    where: str
    specials: dict[str, str]
    chat_templates: dict[str, str]
    model_max_length: int | None
    clean_up_spaces: bool


def read_directory(folder: Path, config: Mapping[str, Any] | None = None) -> Found:
    """Read the tokenizer of a model directory. config: its config.json, if that has been read already."""
    settings = _read_settings(folder, config)
    raw, file = _read_vocabulary(folder, settings)
    where = str(file)
    known = raw.get_vocab(with_added_tokens=True)
    defaults = legacy_vocab.default_specials(settings.layout)
    specials = {role: token for role, token in defaults.items() if token in known and role not in settings.unset}
    specials |= {role: token.content for role, token in settings.specials.items()}
    _add_tokens(raw, settings, specials, where)
    if file.name != "tokenizer.json":
        guarded(where, lambda: legacy_vocab.set_post_processor(raw, settings.layout, specials, settings.config, where))
    return Found(
        raw,
        where,
        specials,
        _chat_templates(folder, settings.config),
        _max_length(settings.config),
        settings.config.get("clean_up_tokenization_spaces") is True,
    )


@dataclass
class Settings:
    """The settings in tokenizer_config.json and the other small files."""

    config: dict[str, Any]
    layout: str | None
    specials: dict[str, AddedToken] = field(default_factory=dict)
    unset: set[str] = field(default_factory=set)  # roles the configuration sets to null
    extra: list[AddedToken] = field(default_factory=list)
    added: dict[int, AddedToken] = field(default_factory=dict)


def _read_settings(folder: Path, model_config: Mapping[str, Any] | None) -> Settings:
    if not folder.is_dir():
        raise TokenizerError(f"{folder} is not a directory, so there is no tokenizer in it.")
    file = folder / "tokenizer_config.json"
    config = read_object(file)
    class_name = config.get("tokenizer_class")
    if model_config is None:
        model_config = read_object(folder / "config.json")
    settings = Settings(config, legacy_vocab.layout_of(class_name, model_config.get("model_type")))
    named = dict(config)
    if "added_tokens_decoder" in config:
        settings.added = _added_by_id(config["added_tokens_decoder"], file)
    else:
        named |= read_object(folder / "special_tokens_map.json")
    by_spelling = {token.content: token for token in settings.added.values()}
    for role in SPECIAL_ROLES:
        if (entry := named.get(f"{role}_token")) is not None:
            token = _added_token(entry, file)
            settings.specials[role] = by_spelling.get(token.content, token)
        elif f"{role}_token" in named:
            settings.unset.add(role)
    extra = named.get("extra_special_tokens") or named.get("additional_special_tokens") or []
    extra = list(extra.values()) if isinstance(extra, dict) else extra
    if not isinstance(extra, list):
        raise TokenizerError(f"{file} has special tokens that are not a list.")
    check_added(extra, file)
    settings.extra = [_added_token(entry, file) for entry in extra]
    if "added_tokens_decoder" not in config:
        special = {t.content for t in (*settings.specials.values(), *settings.extra)}
        settings.added = _added_by_spelling(read_object(folder / "added_tokens.json"), special, folder)
    return settings


def _added_token(entry: Any, file: Path, special: bool = True) -> AddedToken:
    """A token written as its spelling or as an object with a `content` and flags."""
    check_added([entry], file)
    if isinstance(entry, str):
        return AddedToken(entry, special=special)
    if isinstance(entry, dict) and isinstance(entry.get("content"), str):
        flags = {k: entry[k] is True for k in ("single_word", "lstrip", "rstrip", "normalized") if k in entry}
        return AddedToken(entry["content"], special=special, **flags)
    raise TokenizerError(f"{file} describes a token as {quoted(entry)}; a spelling or an object with one was expected.")


def _added_by_id(entries: Any, file: Path) -> dict[int, AddedToken]:
    check_added(list(entries) if isinstance(entries, dict) else entries, file)
    try:
        return {int(i): _added_token(entry, file, entry.get("special") is True) for i, entry in entries.items()}
    except (AttributeError, ValueError):
        raise TokenizerError(f"{file} has an added_tokens_decoder that is not a table from ids to tokens.") from None


def _added_by_spelling(entries: dict[str, Any], special: set[str], folder: Path) -> dict[int, AddedToken]:
    if not all(type(i) is int and i >= 0 for i in entries.values()):
        raise TokenizerError(f"{folder / 'added_tokens.json'} is not a table from tokens to ids.")
    check_added(list(entries), folder / "added_tokens.json")
    return {
        i: AddedToken(token, normalized=token not in special, special=token in special) for token, i in entries.items()
    }


def _read_vocabulary(folder: Path, settings: Settings) -> tuple[tokenizers.Tokenizer, Path]:
    """The bare tokenizer, and its file, for error messages."""
    if (file := folder / "tokenizer.json").exists():
        return _from_json(file), file
    for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        if (file := folder / vocab).exists() and (folder / merges).exists():
            vocabulary = read_object(file)
            settings.layout = settings.layout or legacy_vocab.guess_layout(vocabulary)
            return legacy_vocab.byte_level(file, vocabulary, folder / merges, settings.layout, settings.config), file
    if (file := folder / "source.spm").exists():
        raise TokenizerError(
            f"{file} is a SentencePiece model with a separate vocabulary (Marian's layout), which is not supported; "
            "add a tokenizer.json to the directory."
        )
    if (file := folder / "vocab.txt").exists():
        settings.layout = settings.layout or "bert"
        unknown = settings.specials["unk"].content if "unk" in settings.specials else "[UNK]"
        return legacy_vocab.wordpiece(file, settings.layout, unknown, settings.config), file
    if models := sorted([*folder.glob("*.model"), *folder.glob("*.spm")]):
        raise TokenizerError(
            f"{models[0]} is a SentencePiece model, which is not read directly; save the tokenizer once with "
            "transformers (AutoTokenizer.from_pretrained(…).save_pretrained(…)), which writes a tokenizer.json."
        )
    raise TokenizerError(
        f"{folder} holds no tokenizer: no tokenizer.json, no vocab.json with merges.txt, no vocab.txt."
    )


def _from_json(file: Path) -> tokenizers.Tokenizer:
    content = read_file(file, LARGE, TokenizerError)
    data = parse_object(content, str(file), TokenizerError)
    check_model(data.get("model"), file)
    check_added(data.get("added_tokens"), file)
    check_post_processor(data, file)
    if check_stages(data, file):
        content = json.dumps(data).encode()
    raw = guarded(str(file), lambda: tokenizers.Tokenizer.from_buffer(content))
    for token in data.get("added_tokens") or []:
        if raw.token_to_id(token["content"]) != token["id"]:
            raise TokenizerError(
                f"{file} gives the added token {quoted(token['content'])} the id {token['id']}, "
                f"but its vocabulary gives it {raw.token_to_id(token['content'])}."
            )
    return raw


def _add_tokens(raw: tokenizers.Tokenizer, settings: Settings, specials: dict[str, str], where: str) -> None:
    """Add the tokens that the other files name, and check that they got the ids given there."""
    present = {token.content: token for token in raw.get_added_tokens_decoder().values()}
    raw.add_tokens([token for _, token in sorted(settings.added.items()) if present.get(token.content) != token])
    present = {token.content: token for token in raw.get_added_tokens_decoder().values()}
    named = [settings.specials.get(role) or AddedToken(token, special=True) for role, token in specials.items()]
    raw.add_special_tokens([token for token in [*named, *settings.extra] if token.content not in present])
    for i, token in settings.added.items():
        if raw.token_to_id(token.content) != i:
            raise TokenizerError(
                f"The files next to {where} give the added token {quoted(token.content)} the id {i}, "
                f"but the vocabulary leaves it {raw.token_to_id(token.content)}."
            )


def _chat_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Chat templates by name; .jinja files take precedence over the configuration."""
    entry = config.get("chat_template")
    templates: dict[str, Any] = {"default": entry} if isinstance(entry, str) else {}
    if isinstance(entry, list):
        templates = {str(e.get("name")): e.get("template") for e in entry if isinstance(e, dict)}
    elif isinstance(entry, dict):
        templates = dict(entry)
    if not all(isinstance(template, str) for template in templates.values()):
        raise TokenizerError(f"{folder / 'tokenizer_config.json'} has a chat_template that is not text.")
    files = {f.stem: read_text(f, SMALL) for f in sorted(folder.glob("additional_chat_templates/*.jinja"))}
    if (file := folder / "chat_template.jinja").exists():
        files["default"] = read_text(file, SMALL)
    return files or templates


def _max_length(config: dict[str, Any]) -> int | None:
    length = config.get("model_max_length", config.get("max_len"))
    if isinstance(length, int | float) and not isinstance(length, bool) and 0 < length < VERY_LONG:
        return int(length)
    return None
