"""How a `Model` is asked to write: a prompt and settings → rows, and what steps through them → answers.

In: a model, prompts as text or ids, settings to go over the model's own. Out: whole answers, tokens as they are chosen, or
rows and slots for a scheduler. The native engine writes where it can; else PyTorch, which is imported only then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.engine.fast import FastDecoder, FastTranslator
from regard.engine.generate import Answer, Token, generate, search
from regard.engine.ids import whole_ids
from regard.engine.lanes import Lanes, NativeLanes, bytes_per_token, native_bytes
from regard.engine.sample import RowState, start
from regard.engine.settings import Settings
from regard.engine.stepper import Stepper
from regard.errors import ConfigError, GenerationError, TaskError

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.engine.encode import Progress

Prompt = str | Sequence[str] | Sequence[int]

ANSWER_LENGTH = 256  # new tokens, unless the caller or the model's own settings say
SOURCES_AT_ONCE = 16


@dataclass
class Asked:
    """One generation request, ready to run."""

    stepper: Stepper
    rows: list[RowState]
    prompt_of: list[int]
    settings: Settings
    n_prompts: int


# ── what is asked for, and what is given back ───────────────────────────────────────────────────────────────────────


def answers(model: "Model", prompt: Prompt, given: dict[str, Any]) -> list[list[Answer]]:
    asked = ask(model, prompts_of(model, prompt, given.pop("control", False)), given)
    if asked.settings.num_beams > 1:
        return search(asked.stepper, asked.rows, model.opened.tokenizer)
    events = generate(asked.stepper, asked.rows, asked.prompt_of, model.opened.tokenizer)
    done = [event for event in events if isinstance(event, Answer)]
    n = asked.settings.n
    return [done[i * n : (i + 1) * n] for i in range(asked.n_prompts)]


def tokens(model: "Model", prompt: str | Sequence[int], alternatives: int, given: dict[str, Any]) -> Iterator[Token]:
    asked = ask(model, prompts_of(model, prompt, given.pop("control", False)), given)
    if asked.settings.num_beams > 1 or asked.settings.n > 1:
        raise GenerationError("One answer can be streamed at a time: leave num_beams and n at 1.")
    for event in generate(asked.stepper, asked.rows, asked.prompt_of, model.opened.tokenizer, alternatives):
        if isinstance(event, Token):
            yield event


def translations(
    model: "Model", sources: list[str], progress: "Progress | None", given: Mapping[str, Any]
) -> list[str]:
    """What is written for each source; those of about the same length together."""
    checked(model, given)  # also where there is nothing to write
    written = [""] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for first in range(0, len(order), SOURCES_AT_ONCE):
        which = order[first : first + SOURCES_AT_ONCE]
        results = model.generate([sources[i] for i in which], **given)
        for i, text in zip(which, results, strict=True):
            written[i] = text
        if progress is not None:
            progress(first + len(which), len(sources))
    return written


def rows(model: "Model", prompt: Sequence[int], context: int | None, given: Mapping[str, Any]) -> list[RowState]:
    settings = checked(model, {**given, "num_beams": 1})
    (ids,) = prompts_of(model, prompt, False)
    ids = ids or [model.first_token()]
    return start(settings, ids, settings.room(len(ids), min(context or model.spec.context, model.spec.context)))


# ── prompts and settings, checked against the model ─────────────────────────────────────────────────────────────────


def is_single(prompt: Prompt) -> bool:
    return isinstance(prompt, str) or not all(isinstance(p, str) for p in prompt)


def prompts_of(model: "Model", prompt: Prompt, control: bool) -> list[list[int]]:
    """Token ids for each prompt, whichever way it was given; a text that is longer than the context is refused."""
    n_vocab, most = model.spec.source_vocab, model.spec.source_context
    if isinstance(prompt, str):
        return [model.tokenizer.encode(prompt, allow_control=control, most=most)]
    if len(prompt) and all(isinstance(p, str) for p in prompt):
        return [model.tokenizer.encode(str(p), allow_control=control, most=most) for p in prompt]
    return [whole_ids(prompt, n_vocab)]


def own_settings(model: "Model") -> Settings:
    """As the model's generation_config.json says; what it leaves open, as the spec says."""
    said = Settings.from_generation_config(model.opened.generation)
    ids: dict[str, Any] = {}
    if not said.eos_token_id and model.spec.eos_ids:
        ids["eos_token_id"] = model.spec.eos_ids
    if said.decoder_start_token_id is None and model.spec.start_id is not None:
        ids["decoder_start_token_id"] = model.spec.start_id
    return said.replace(**ids)


def checked(model: "Model", given: Mapping[str, Any]) -> Settings:
    """The model's own settings with what was given, checked against the model, with a seed."""
    settings = model.settings.replace(**given)
    settings.check(model.spec.n_vocab, model.spec.context)
    if model.unspeakable:
        settings = settings.replace(suppress_tokens=(*settings.suppress_tokens, *model.unspeakable))
    return settings.seeded()


# ── rows, and what steps through them ───────────────────────────────────────────────────────────────────────────────


def ask(model: "Model", prompts: list[list[int]], given: Mapping[str, Any]) -> Asked:
    if model.spec.head.kind != "lm":
        raise TaskError(f"{model.name} has no language-modelling head, so it cannot write text.")
    settings = checked(model, given)
    with model.laying_out:
        return (ask_decoder if model.spec.kind == "decoder" else ask_seq2seq)(model, prompts, settings)


def ask_decoder(model: "Model", prompts: list[list[int]], settings: Settings) -> Asked:
    if settings.max_new_tokens is None and settings.max_length is None:
        settings = settings.replace(max_new_tokens=min(ANSWER_LENGTH, model.spec.context))
    prompts = [ids or [model.first_token()] for ids in prompts]
    rooms = [settings.room(len(ids), model.spec.context) for ids in prompts]
    made, prompt_of = make_rows(settings, prompts, rooms)
    return Asked(decoder(model, prompts, max(rooms)), made, prompt_of, settings, len(prompts))


def ask_seq2seq(model: "Model", sources: list[list[int]], settings: Settings) -> Asked:
    limit = model.spec.source_context
    for ids in sources:
        if not ids or len(ids) > limit:
            raise GenerationError(f"A source has {len(ids)} tokens; it must have from 1 to {limit}.")
    if settings.decoder_start_token_id is None:
        raise ConfigError(f"{model.path}: no decoder_start_token_id says how a target begins.")
    starts = [[settings.decoder_start_token_id] for _ in sources]
    room = settings.room(1, model.spec.context)
    made, prompt_of = make_rows(settings, starts, [room] * len(starts))
    return Asked(translator(model, sources, starts, room), made, prompt_of, settings, len(sources))


def make_rows(
    settings: Settings, prompts: Sequence[Sequence[int]], rooms: Sequence[int]
) -> tuple[list[RowState], list[int]]:
    """A row per sample (one per prompt for beam search), and the prompt each continues."""
    if settings.num_beams > 1:
        return [RowState(settings, p, limit=room) for p, room in zip(prompts, rooms, strict=True)], []
    grouped = [start(settings, p, room) for p, room in zip(prompts, rooms, strict=True)]
    return [row for group in grouped for row in group], [i for i, group in enumerate(grouped) for _ in group]


def decoder(model: "Model", prompts: list[list[int]], room: int) -> Stepper:
    if (engine := model.engine) is not None:
        return FastDecoder(engine, prompts, room)
    from regard.engine.decode import Decoder
    from regard.model.transformer import DecoderOnly

    assert isinstance(model.net, DecoderOnly)
    return Decoder(model.net, prompts, room)


def translator(model: "Model", sources: list[list[int]], starts: list[list[int]], room: int) -> Stepper:
    if (engine := model.engine) is not None:
        return FastTranslator(engine, sources, starts, room)
    from regard.engine.decode import Translator
    from regard.model.transformer import Seq2Seq

    assert isinstance(model.net, Seq2Seq)
    return Translator(model.net, sources, starts, room)


def lanes(model: "Model", slots: int, room: int) -> Lanes:
    if (engine := model.engine) is not None:
        return NativeLanes(engine, slots, room)
    from regard.engine.torch_lanes import TorchLanes
    from regard.model.transformer import DecoderOnly

    assert isinstance(model.net, DecoderOnly)
    return TorchLanes(model.net, slots, room)


def slot_bytes(model: "Model", room: int) -> int:
    if (engine := model.engine) is not None:
        return native_bytes(engine, room)
    return room * bytes_per_token(model.spec.stacks["decoder"], next(model.net.parameters()).element_size())
