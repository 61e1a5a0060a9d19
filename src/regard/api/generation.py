"""Text generation with a `Model`: prompts and settings → rows and a decoder → answers.

In: a model, prompts as text or ids, settings that override the model's own. Out: whole answers, tokens as they are chosen,
or rows and slots for a scheduler. The native engine generates where it can, else the network itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.engine.check_ids import whole_ids
from regard.engine.decoder import Decoder
from regard.engine.generate import Answer, Token, generate, search
from regard.engine.native_engine import NativeDecoder, NativeTranslator
from regard.engine.reference_decoder import ReferenceDecoder, ReferenceTranslator, any_weight
from regard.engine.reference_slots import ReferenceSlots
from regard.engine.sampling import RowState, start
from regard.engine.settings import Settings
from regard.engine.slots import NativeSlots, Slots, bytes_per_token, native_slot_bytes
from regard.errors import ConfigError, GenerationError, TaskError
from regard.model.reference import Seq2Seq
from regard.model.transformer import DecoderOnly

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.engine.encode import Progress

Prompt = str | Sequence[str] | Sequence[int]

ANSWER_LENGTH = 256  # new tokens, unless the caller or the model's own settings have a limit
TRANSLATION_BATCH = 16


@dataclass
class GenerationRequest:
    """A validated request for generation: its rows, and the decoder that runs them."""

    decoder: Decoder
    rows: list[RowState]
    prompt_of: list[int]
    settings: Settings
    n_prompts: int


# ── requests and results ────────────────────────────────────────────────────────────────────────────────────────────


def answers(model: "Model", prompt: Prompt, settings: dict[str, Any]) -> list[list[Answer]]:
    """The n answers to each prompt, whole."""
    request = prepare(model, encode_prompts(model, prompt, settings.pop("control", False)), settings)
    if request.settings.num_beams > 1:
        return search(request.decoder, request.rows, model.opened.tokenizer)
    events = generate(request.decoder, request.rows, request.prompt_of, model.opened.tokenizer)
    done = [event for event in events if isinstance(event, Answer)]
    n = request.settings.n
    return [done[i * n : (i + 1) * n] for i in range(request.n_prompts)]


def tokens(model: "Model", prompt: str | Sequence[int], alternatives: int, settings: dict[str, Any]) -> Iterator[Token]:
    """The tokens of one answer, as they are chosen."""
    request = prepare(model, encode_prompts(model, prompt, settings.pop("control", False)), settings)
    if request.settings.num_beams > 1 or request.settings.n > 1:
        raise GenerationError("One answer can be streamed at a time: leave num_beams and n at 1.")
    for event in generate(request.decoder, request.rows, request.prompt_of, model.opened.tokenizer, alternatives):
        if isinstance(event, Token):
            yield event


def translations(
    model: "Model", sources: list[str], progress: "Progress | None", settings: Mapping[str, Any]
) -> list[str]:
    """The translation of each source, in batches of similar length."""
    checked_settings(model, settings)  # also if there is no source
    translated = [""] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for first in range(0, len(order), TRANSLATION_BATCH):
        which = order[first : first + TRANSLATION_BATCH]
        results = model.generate([sources[i] for i in which], **settings)
        for i, text in zip(which, results, strict=True):
            translated[i] = text
        if progress is not None:
            progress(first + len(which), len(sources))
    return translated


def rows(model: "Model", prompt: Sequence[int], context: int | None, settings: Mapping[str, Any]) -> list[RowState]:
    """The rows of a request, for a scheduler whose slots hold `context` tokens."""
    checked = checked_settings(model, {**settings, "num_beams": 1})
    (ids,) = encode_prompts(model, prompt, False)
    ids = ids or [model.first_token()]
    return start(
        checked, ids, checked.new_token_limit(len(ids), min(context or model.spec.context, model.spec.context))
    )


# ── prompts and settings, checked against the model ─────────────────────────────────────────────────────────────────


def is_single(prompt: Prompt) -> bool:
    return isinstance(prompt, str) or not all(isinstance(p, str) for p in prompt)


def encode_prompts(model: "Model", prompt: Prompt, control: bool) -> list[list[int]]:
    """The token ids of each prompt, given as text or ids; a text that is longer than the context is refused."""
    n_vocab, limit = model.spec.source_vocab, model.spec.source_context
    if isinstance(prompt, str):
        return [model.tokenizer.encode(prompt, allow_control=control, most=limit)]
    if len(prompt) and all(isinstance(p, str) for p in prompt):
        return [model.tokenizer.encode(str(p), allow_control=control, most=limit) for p in prompt]
    return [whole_ids(prompt, n_vocab)]


def default_settings(model: "Model") -> Settings:
    """The settings of the model's generation_config.json; token ids that it lacks are the spec's."""
    own = Settings.from_generation_config(model.opened.generation)
    ids: dict[str, Any] = {}
    if not own.eos_token_id and model.spec.eos_ids:
        ids["eos_token_id"] = model.spec.eos_ids
    if own.decoder_start_token_id is None and model.spec.start_id is not None:
        ids["decoder_start_token_id"] = model.spec.start_id
    return own.replace(**ids)


def checked_settings(model: "Model", settings: Mapping[str, Any]) -> Settings:
    """The model's own settings overridden by `settings`, checked against the model, with a seed."""
    checked = model.settings.replace(**settings)
    checked.check(model.spec.n_vocab, model.spec.context)
    if model.ids_without_token:
        checked = checked.replace(suppress_tokens=(*checked.suppress_tokens, *model.ids_without_token))
    return checked.seeded()


# ── rows and decoders ───────────────────────────────────────────────────────────────────────────────────────────────


def prepare(model: "Model", prompts: list[list[int]], settings: Mapping[str, Any]) -> GenerationRequest:
    if model.spec.head.kind != "lm":
        raise TaskError(f"{model.name} has no language-modelling head, so it cannot generate text.")
    checked = checked_settings(model, settings)
    with model.packing:
        return (prepare_decoder if model.spec.kind == "decoder" else prepare_seq2seq)(model, prompts, checked)


def prepare_decoder(model: "Model", prompts: list[list[int]], settings: Settings) -> GenerationRequest:
    if settings.max_new_tokens is None and settings.max_length is None:
        settings = settings.replace(max_new_tokens=min(ANSWER_LENGTH, model.spec.context))
    prompts = [ids or [model.first_token()] for ids in prompts]
    capacities = [settings.new_token_limit(len(ids), model.spec.context) for ids in prompts]
    rows, prompt_of = make_rows(settings, prompts, capacities)
    return GenerationRequest(make_decoder(model, prompts, max(capacities)), rows, prompt_of, settings, len(prompts))


def prepare_seq2seq(model: "Model", sources: list[list[int]], settings: Settings) -> GenerationRequest:
    limit = model.spec.source_context
    for ids in sources:
        if not ids or len(ids) > limit:
            raise GenerationError(f"A source has {len(ids)} tokens; it must have from 1 to {limit}.")
    if settings.decoder_start_token_id is None:
        raise ConfigError(f"{model.path}: no decoder_start_token_id says how a target begins.")
    starts = [[settings.decoder_start_token_id] for _ in sources]
    capacity = settings.new_token_limit(1, model.spec.context)
    rows, prompt_of = make_rows(settings, starts, [capacity] * len(starts))
    decoder = make_translator(model, sources, starts, capacity)
    return GenerationRequest(decoder, rows, prompt_of, settings, len(sources))


def make_rows(
    settings: Settings, prompts: Sequence[Sequence[int]], capacities: Sequence[int]
) -> tuple[list[RowState], list[int]]:
    """A row per sample (one per prompt for beam search), and the prompt each continues."""
    if settings.num_beams > 1:
        return [RowState(settings, p, limit=n) for p, n in zip(prompts, capacities, strict=True)], []
    grouped = [start(settings, p, n) for p, n in zip(prompts, capacities, strict=True)]
    return [row for group in grouped for row in group], [i for i, group in enumerate(grouped) for _ in group]


def make_decoder(model: "Model", prompts: list[list[int]], capacity: int) -> Decoder:
    if (engine := model.engine) is not None:
        return NativeDecoder(engine, prompts, capacity)
    net = model.network
    assert isinstance(net, DecoderOnly)
    return ReferenceDecoder(net, prompts, capacity)


def make_translator(model: "Model", sources: list[list[int]], starts: list[list[int]], capacity: int) -> Decoder:
    if (engine := model.engine) is not None:
        return NativeTranslator(engine, sources, starts, capacity)
    net = model.network
    assert isinstance(net, Seq2Seq)
    return ReferenceTranslator(net, sources, starts, capacity)


def make_slots(model: "Model", count: int, capacity: int) -> Slots:
    if (engine := model.engine) is not None:
        return NativeSlots(engine, count, capacity)
    net = model.network
    assert isinstance(net, DecoderOnly)
    return ReferenceSlots(net, count, capacity)


def slot_bytes(model: "Model", capacity: int) -> int:
    if (engine := model.engine) is not None:
        return native_slot_bytes(engine, capacity)
    return capacity * bytes_per_token(model.spec.stacks["decoder"], any_weight(model.network).itemsize)
