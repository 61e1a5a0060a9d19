"""`regard.load(where)` → a `Model`: one object for what a person wants to do with a transformer.

It holds a network, its spec and its tokenizer, and hands each wish to the room that grants it. Heavy rooms are entered
when they are needed.
"""

import math
import operator
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from regard.engine.choose import Rounded, engine_of_file, engine_of_network, fingerprint, wanted
from regard.engine.decode import Decoder, Stepper, Translator, lay_out_for_decoding, pad
from regard.engine.encode import Progress, pool, run_batched
from regard.engine.fast import Engine, FastDecoder, FastTranslator
from regard.engine.generate import Answer, Token, generate, search
from regard.engine.lanes import Lanes, NativeLanes, TorchLanes, bytes_per_token, native_bytes
from regard.engine.sample import RowState, start
from regard.engine.settings import Settings
from regard.errors import ConfigError, GenerationError, TaskError, TokenizerError
from regard.model.registry import Family
from regard.model.spec import Spec
from regard.model.transformer import DecoderOnly, EncoderOnly, Network, Seq2Seq, blueprint, class_logits
from regard.nn.see import watched
from regard.store.open import Opened, Pooling, load_network, open_model
from regard.text.chat import encode_chat
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.engine.cost import Cost
    from regard.explain.trace import Trace
    from regard.train.settings import TrainSettings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ANSWER_LENGTH = 256  # new tokens, unless the caller or the model's own settings say
Ids = Sequence[int] | Sequence[Sequence[int]] | Tensor
T = TypeVar("T")


def load(
    where: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    device: str = "auto",
    quantize: str | None = None,
    engine: str = "auto",
    progress: Any = None,
) -> "Model":
    """A model by name, directory, .gguf file or training run.

    dtype: float32 unless given, in which results equal Hugging Face's. device: auto takes a GPU if there is one.
    quantize: "q8" or "q4" rounds the matrices as those formats store them. engine: "auto" writes and embeds with the native
    engine where it can, "torch" never. progress: called with weights done, in all.

    A GGUF file's 16-, 8- and 4-bit weights are computed with as they are, unless a dtype is given; its network, in
    float32, is then only made when somebody looks into it.
    """
    opened = open_model(where)
    chosen, kind = choose_device(device), choose_dtype(dtype)
    native = wanted(engine, opened.spec, chosen)
    if native and dtype is None and quantize is None and (packed := engine_of_file(opened, progress)) is not None:
        return Model(None, opened, str(where), native=True, engine=packed)
    net, rounded = load_network(opened, kind, chosen, progress), None
    if quantize is not None:
        from regard.store.rounding import round_weights

        rounded = round_weights(net, quantize)
    return Model(net, opened, str(where), native=native, rounded=rounded)


def choose_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    if dtype not in (None, *DTYPES):
        raise ConfigError(f"dtype is {dtype!r}; it can be {', '.join(DTYPES)}.")
    return DTYPES[dtype or "float32"]


def choose_device(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.ones(1, device=device).item()  # a device that torch knows, and that is here and computes
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(f"device is {device!r}, which cannot be used here; auto takes what there is.") from None
    return str(torch.device(device))


class Scores(list[float]):
    """Log-probabilities of the tokens of a text, and the tokens. The first token, having no context, has none."""

    def __init__(self, logprobs: Sequence[float], ids: Sequence[int], tokens: Sequence[str]) -> None:
        super().__init__(logprobs)
        self.ids, self.tokens = list(ids), list(tokens)

    @property
    def perplexity(self) -> float:
        return float(torch.tensor(list(self), dtype=torch.float64).mean().neg().exp())


@dataclass(frozen=True)
class Tagged:
    """A word of a text, its tag, and how sure the model is."""

    word: str
    tag: str
    probability: float
    start: int
    end: int


@dataclass
class Asked:
    """One generation request, ready to run."""

    stepper: Stepper
    rows: list[RowState]
    prompt_of: list[int]
    settings: Settings
    n_prompts: int = field(default=1)


class Model:
    def __init__(
        self,
        net: Network | None,
        opened: Opened,
        name: str = "",
        *,
        native: bool = False,
        engine: Engine | None = None,
        rounded: Rounded | None = None,
    ) -> None:
        """net: None reads it from the files when it is first looked at. native: the native engine writes and embeds;
        `engine`, if it is there already, else packed when needed, with `rounded` matrices as their formats store them."""
        self._net = net
        self._native, self._engine, self._rounded = native, engine, rounded
        self._packed: Any = None  # what the weights were when they were packed
        self.opened = opened
        self.spec: Spec = opened.spec
        self.config: dict[str, Any] = opened.config
        self.path: Path = opened.path
        self.name: str = Path(name or opened.path).resolve().name  # what messages call it
        self.pooling: Pooling = opened.pooling
        self._family: Family = opened.family
        self._tokenizer: Tokenizer | None = opened.tokenizer
        self._lock, self._reading = threading.Lock(), threading.Lock()

    @property
    def net(self) -> Network:
        """The network itself, which can be watched, edited and trained."""
        with self._reading:
            if self._net is None:
                net = load_network(self.opened)
                self._packed, self._net = fingerprint(net), net
        return self._net

    @property
    def engine(self) -> Engine | None:
        """The native engine with the weights as they are now. None: PyTorch computes, as it does when somebody watches."""
        if not self._native or watched():
            return None
        if self._net is not None and (now := fingerprint(self._net)) != self._packed:
            rounded = self._rounded if self._packed is None else None  # rewritten since
            self._engine, self._packed = engine_of_network(self._net, self.spec, rounded), now
        return self._engine

    def prepare(self) -> None:
        """Lay the weights out for writing now, instead of when the first text is asked for."""
        if self.engine is None and self.spec.head.kind == "lm":
            lay_out_for_decoding(self.net)

    @property
    def nbytes(self) -> int:
        """What the weights take now: the network's, the native engine's, or both."""
        network = 0 if self._net is None else sum(p.numel() * p.element_size() for p in self._net.parameters())
        return network + (0 if self._engine is None else self._engine.arena.size)

    def __repr__(self) -> str:
        n = sum(p.numel() for p in self.net.parameters()) if self._net is not None else count_parameters(self.spec)
        return f"<regard.Model {self.name}: {self.family}, {self.spec.kind}, {n:,} parameters>"

    @property
    def family(self) -> str:
        return self._family.name

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self._net is None else next(self._net.parameters()).device

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise TokenizerError(f"{self.path} has no tokenizer (tokenizer.json), so only ids can be used.")
        return self._tokenizer

    # ── ids in, numbers out ─────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def __call__(
        self, ids: Ids, target_ids: Ids | None = None, *, mask: Ids | None = None, types: Ids | None = None
    ) -> Tensor:
        """Decoder: logits (B, N, n_vocab). Encoder: states (B, N, d), or its head's logits. Encoder-decoder: logits for
        the target (B, M, n_vocab). `mask` (B, N) is 1 where an id is a token and 0 where it is padding."""
        ids, given = self._batch(ids, "ids", self.spec.source_vocab, self.spec.source_context)
        real = given if mask is None else self._like(mask, ids, "mask").bool()
        if isinstance(self.net, EncoderOnly):
            kinds = None if types is None else self._like(types, ids, "types")
            return self.net(ids, real, kinds)
        if isinstance(self.net, DecoderOnly):
            return self.net(ids, real)
        if self.spec.head.kind == "classify":
            return class_logits(self.net, ids, real)
        if target_ids is None:
            raise TaskError("An encoder-decoder also needs target_ids: what its decoder has written so far.")
        target, target_real = self._batch(target_ids, "target_ids", self.spec.n_vocab, self.spec.context)
        if len(target) != len(ids):
            raise TaskError(f"There are {len(ids)} sources but {len(target)} targets.")
        return self.net(ids, target, real, target_real)

    def _batch(self, ids: Ids, name: str, n_vocab: int, limit: int) -> tuple[Tensor, Tensor | None]:
        """Ids as (B, N), rows of different lengths padded on the right, checked against the vocabulary."""
        real = None
        if isinstance(ids, Tensor):
            batch = ids
        elif ids and isinstance(ids[0], Sequence):
            batch, real = pad(ids, self.spec.pad_id or 0, left=False, device=self.device)  # type: ignore[arg-type]
        else:
            batch = torch.tensor(ids, dtype=torch.long)
        batch = batch[None] if batch.dim() == 1 else batch
        if batch.dim() != 2 or not batch.numel() or batch.is_floating_point():
            raise TaskError(
                f"{name} must be a list of token ids or a batch of them, not of shape {tuple(batch.shape)}."
            )
        if not 0 <= int(batch.min()) <= int(batch.max()) < n_vocab:
            raise TaskError(f"{name} hold {int(batch.max())}, but the vocabulary ends at {n_vocab - 1}.")
        if self.spec.learns_positions and batch.shape[1] > limit:
            raise TaskError(f"{name} are {batch.shape[1]} tokens long, but the model has {limit} positions.")
        return batch.to(self.device, torch.long), real

    def _like(self, values: Ids, ids: Tensor, name: str) -> Tensor:
        tensor = torch.as_tensor(values, device=self.device)
        tensor = tensor[None] if tensor.dim() == 1 else tensor
        if tensor.shape != ids.shape:
            raise TaskError(f"{name} has shape {tuple(tensor.shape)}, but the ids have {tuple(ids.shape)}.")
        return tensor

    # ── text out ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> Settings:
        """How this model generates unless told otherwise: as its generation_config.json says, else greedily."""
        said = Settings.from_generation_config(self.opened.generation)
        ids: dict[str, Any] = {}
        if not said.eos_token_id and self.spec.eos_ids:
            ids["eos_token_id"] = self.spec.eos_ids
        if said.decoder_start_token_id is None and self.spec.start_id is not None:
            ids["decoder_start_token_id"] = self.spec.start_id
        return said.replace(**ids)

    def generate(self, prompt: str | Sequence[str] | Sequence[int], **given: Any) -> Any:
        """The continuation of a prompt (for an encoder-decoder: what it writes for that source).

        One prompt and n=1: a string. n > 1: a list of strings. A list of prompts: a list of what each would have given.
        Settings are those of `Settings`: temperature=0 is greedy, and an answer has at most 256 tokens unless told.
        `control=True` reads control tokens that are spelt in the prompt.
        """
        answers = [[a.text for a in each] for each in self.answers(prompt, **given)]
        shaped = [each[0] if len(each) == 1 else each for each in answers]
        return shaped[0] if is_single(prompt) else shaped

    def answers(self, prompt: str | Sequence[str] | Sequence[int], **given: Any) -> list[list[Answer]]:
        """As `generate`, with ids, log-probabilities and why each answer ended: a list of n per prompt."""
        prompts = self._prompts(prompt, given.pop("control", False))
        asked = self._ask(prompts, given)
        if asked.settings.num_beams > 1:
            return search(asked.stepper, asked.rows, self._tokenizer)
        done = [
            a for a in generate(asked.stepper, asked.rows, asked.prompt_of, self._tokenizer) if isinstance(a, Answer)
        ]
        n = asked.settings.n
        return [done[i * n : (i + 1) * n] for i in range(asked.n_prompts)]

    def stream(self, prompt: str | Sequence[int], **given: Any) -> Iterator[str]:
        """The same text as `generate`, piece by piece, never half a character."""
        for token in self.stream_tokens(prompt, **given):
            if token.text:
                yield token.text

    def stream_tokens(self, prompt: str | Sequence[int], *, alternatives: int = 0, **given: Any) -> Iterator[Token]:
        """Tokens as they are chosen, each with its log-probability and, if asked for, the likeliest alternatives."""
        asked = self._ask(self._prompts(prompt, given.pop("control", False)), given)
        if asked.settings.num_beams > 1 or asked.settings.n > 1:
            raise GenerationError("One answer can be streamed at a time: leave num_beams and n at 1.")
        for event in generate(asked.stepper, asked.rows, asked.prompt_of, self._tokenizer, alternatives):
            if isinstance(event, Token):
                yield event

    def chat(self, messages: str | Sequence[Mapping[str, str]], **given: Any) -> str:
        """The assistant's next message. A string stands for one message from the user."""
        text: str = self.generate(self.chat_ids(messages), **given)
        return text

    def chat_ids(self, messages: str | Sequence[Mapping[str, str]]) -> list[int]:
        """The conversation as the model's own template writes it, ready for its answer."""
        self._need("decoder", "chat")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return encode_chat(self.tokenizer, [dict(m) for m in messages])

    def translate(
        self, texts: str | Sequence[str], num_beams: int = 4, *, progress: Progress | None = None, **given: Any
    ) -> list[str]:
        """What an encoder-decoder writes for each text."""
        self._need("encoder-decoder", "translate")
        sources = [texts] if isinstance(texts, str) else list(texts)
        written = [""] * len(sources)
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        for first in range(0, len(order), 16):
            which = order[first : first + 16]
            results = self.generate([sources[i] for i in which], **{**given, "num_beams": num_beams})
            for i, text in zip(which, results, strict=True):
                written[i] = text
            if progress is not None:
                progress(first + len(which), len(sources))
        return written

    def _prompts(self, prompt: str | Sequence[str] | Sequence[int], control: bool) -> list[list[int]]:
        """Token ids for each prompt, whichever way it was given."""
        if isinstance(prompt, str):
            return [self.tokenizer.encode(prompt, allow_control=control)]
        if prompt and all(isinstance(p, str) for p in prompt):
            return [self.tokenizer.encode(str(p), allow_control=control) for p in prompt]
        n_vocab = self.spec.source_vocab
        ids = list(prompt)
        if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < n_vocab for i in ids):
            raise GenerationError(f"A prompt is text, or ids from 0 to {n_vocab - 1}.")
        return [ids]  # type: ignore[list-item]

    def rows(self, prompt: Sequence[int], *, context: int | None = None, **given: Any) -> list[RowState]:
        """The `n` rows of a request, checked and ready for a scheduler whose slots hold `context` tokens.

        Unless told how long it may be, an answer may fill the context.
        """
        self._need("decoder", "continue a text")
        room = min(context or self.spec.context, self.spec.context)
        settings = self._settings({**given, "num_beams": 1})
        (ids,) = self._prompts(prompt, False)
        ids = ids or [self._first_token()]
        return start(settings, ids, settings.room(len(ids), room))

    def slot_bytes(self, room: int) -> int:
        """What the keys and values of a text of so many tokens take."""
        if (engine := self.engine) is not None:
            return native_bytes(engine, room)
        assert isinstance(self.net, DecoderOnly)
        return room * bytes_per_token(self.net.stack, self.net.embed.tokens.weight.element_size())

    def lanes(self, slots: int, room: int) -> Lanes:
        """Slots for a scheduler, on the fastest engine that knows this network."""
        self._need("decoder", "continue a text")
        if (engine := self.engine) is not None:
            return NativeLanes(engine, slots, room)
        assert isinstance(self.net, DecoderOnly)
        return TorchLanes(self.net, slots, room)

    def _settings(self, given: Mapping[str, Any]) -> Settings:
        """The model's own settings with what was given, checked against the model, with a seed."""
        settings = self.settings.replace(**given)
        settings.check(self.spec.n_vocab, self.spec.context)
        if self.unspeakable:
            settings = settings.replace(suppress_tokens=(*settings.suppress_tokens, *self.unspeakable))
        return settings.seeded()

    def _ask(self, prompts: list[list[int]], given: Mapping[str, Any]) -> Asked:
        if self.spec.head.kind != "lm":
            raise TaskError(f"{self.name} has no language-modelling head, so it cannot write text.")
        settings = self._settings(given)
        if settings.max_new_tokens is None and settings.max_length is None and self.spec.kind == "decoder":
            settings = settings.replace(max_new_tokens=min(ANSWER_LENGTH, self.spec.context))
        with self._lock:  # the weights are laid out anew the first time
            return (
                self._ask_decoder(prompts, settings)
                if self.spec.kind == "decoder"
                else self._ask_seq2seq(prompts, settings)
            )

    def _ask_decoder(self, prompts: list[list[int]], settings: Settings) -> Asked:
        prompts = [ids or [self._first_token()] for ids in prompts]
        rooms = [settings.room(len(ids), self.spec.context) for ids in prompts]
        rows, prompt_of = make_rows(settings, prompts, rooms)
        return Asked(self._decoder(prompts, max(rooms)), rows, prompt_of, settings, len(prompts))

    def _decoder(self, prompts: list[list[int]], room: int) -> Stepper:
        if (engine := self.engine) is not None:
            return FastDecoder(engine, prompts, room)
        assert isinstance(self.net, DecoderOnly)
        return Decoder(self.net, prompts, room)

    def _translator(self, sources: list[list[int]], starts: list[list[int]], room: int) -> Stepper:
        if (engine := self.engine) is not None:
            return FastTranslator(engine, sources, starts, room)
        assert isinstance(self.net, Seq2Seq)
        return Translator(self.net, sources, starts, room)

    def _ask_seq2seq(self, sources: list[list[int]], settings: Settings) -> Asked:
        limit = self.spec.source_context
        for ids in sources:
            if not ids or len(ids) > limit:
                raise GenerationError(f"A source has {len(ids)} tokens; it must have from 1 to {limit}.")
        if settings.decoder_start_token_id is None:
            raise ConfigError(f"{self.path}: no decoder_start_token_id says how a target begins.")
        starts = [[settings.decoder_start_token_id] for _ in sources]
        room = settings.room(1, self.spec.context)
        rows, prompt_of = make_rows(settings, starts, [room] * len(starts))
        with torch.inference_mode():
            stepper = self._translator(sources, starts, room)
        return Asked(stepper, rows, prompt_of, settings, len(sources))

    @cached_property
    def unspeakable(self) -> tuple[int, ...]:
        """Rows of the embedding that pad it to a round number: no token has their ids, so none may be generated."""
        if self._tokenizer is None:
            return ()
        return tuple(sorted(set(range(self.spec.n_vocab)) - set(self._tokenizer.vocab.values())))

    def _first_token(self) -> int:
        """What stands for an empty text: the token that begins texts, or ends them."""
        candidates = [self._tokenizer.bos_id if self._tokenizer else None, self.spec.bos_id, *self.spec.eos_ids]
        first = next((i for i in candidates if i is not None and i < self.spec.n_vocab), None)
        if first is None:
            raise GenerationError("The text is empty, and this model has no token to begin with.")
        return first

    # ── texts in, answers out ───────────────────────────────────────────────────────────────────────────────────────

    def embed(self, texts: str | Sequence[str | Sequence[int]], *, progress: Progress | None = None) -> Tensor:
        """(n, d): one vector per text, pooled as the model's files say, else the mean of its states at length 1.

        A text may be given as its ids, control tokens included.
        """
        listed = [texts] if isinstance(texts, str) else list(texts)
        if not listed:
            return torch.empty(0, self.spec.d)
        rows, p = self._encode_all(listed, self.pooling.max_tokens), self.pooling
        if self.spec.kind == "encoder" and (engine := self.engine) is not None:
            vectors = []
            for done, states in enumerate(engine.states(rows), 1):
                vectors.append(pool(states[None], None, p.mode, p.normalise)[0])
                if progress is not None:
                    progress(done, len(rows))
            return torch.stack(vectors)
        net = self.net

        def run(ids: Tensor, real: Tensor | None, which: list[int]) -> Tensor:
            states = net.encode(ids, real) if isinstance(net, Seq2Seq) else net.states(ids, real)
            return pool(states, real, p.mode, p.normalise)

        return torch.stack(self._run(rows, run, progress)).cpu().clone()

    def classify(self, texts: str | Sequence[str], *, progress: Progress | None = None) -> list[dict[str, float]]:
        """For each text, label → probability, likeliest first."""
        self._need_head("classify", "classify")
        listed = [texts] if isinstance(texts, str) else list(texts)

        def run(ids: Tensor, real: Tensor | None, which: list[int]) -> Tensor:
            return class_logits(self.net, ids, real).float().softmax(-1)

        results = self._run(self._encode_all(listed), run, progress)
        named = [dict(zip(self.spec.head.labels, P.tolist(), strict=True)) for P in results]
        return [dict(sorted(each.items(), key=lambda item: -item[1])) for each in named]

    def tag(self, texts: str | Sequence[str], *, progress: Progress | None = None) -> list[list[Tagged]]:
        """For each text its words with their tags; a word's first piece decides."""
        self._need_head("tag", "tag")
        assert isinstance(self.net, EncoderOnly)
        net, listed = self.net, [texts] if isinstance(texts, str) else list(texts)
        words = [self.tokenizer.words(text) for text in listed]
        encoded = [self.tokenizer.encode_words([w for w, _, _ in each]) for each in words]
        rows = [self._fit(ids) for ids, _ in encoded]

        def run(ids: Tensor, real: Tensor | None, which: list[int]) -> Tensor:
            return net(ids, real).float().softmax(-1)

        results = self._run(rows, run, progress)
        return [self._tagged(text, P, index) for text, P, (_, index) in zip(words, results, encoded, strict=True)]

    def _tagged(self, words: list[tuple[str, int, int]], P: Tensor, index: list[int | None]) -> list[Tagged]:
        tagged, seen = [], set[int]()
        for position, word in enumerate(index[: len(P)]):
            if word is not None and word not in seen:
                seen.add(word)
                best = int(P[position].argmax())
                text, start, end = words[word]
                tagged.append(Tagged(text, self.spec.head.labels[best], float(P[position, best]), start, end))
        return tagged

    def fill(self, text: str, top_k: int = 5) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """The likeliest tokens for the mask in the text; for several masks, a list for each."""
        self._need_head("mlm", "fill masks")
        ids = self._fit(self.tokenizer.encode(text, allow_control=True))
        mask = self.tokenizer.mask_id
        places = [i for i, id in enumerate(ids) if id == mask]
        if not places:
            spelt = self.tokenizer.token(mask) if mask is not None else "a mask token"
            raise TaskError(f"The text has no {spelt} to fill.")
        P = self(ids)[0].float().softmax(-1)
        filled = []
        for place in places:
            best = P[place].topk(min(top_k, P.shape[-1]))
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            filled.append([self._filled(ids, place, id, p) for id, p in rows])
        return filled[0] if len(filled) == 1 else filled

    def _filled(self, ids: list[int], place: int, id: int, probability: float) -> dict[str, Any]:
        mask, special = self.tokenizer.mask_id, self.tokenizer.special_ids
        filled = [i for i in [*ids[:place], id, *ids[place + 1 :]] if i == mask or i not in special]
        text = self.tokenizer.decode(filled, skip_special=False)
        return {"token": self.tokenizer.decode([id]).strip(), "id": id, "probability": probability, "text": text}

    def score(self, text: str, target: str | None = None) -> Scores:
        """The log-probability of each token given those before it (of the target, for an encoder-decoder)."""
        if self.spec.head.kind != "lm":
            raise TaskError(f"{self.name} has no language-modelling head, so it cannot score text.")
        ids = self.tokenizer.encode(text)
        if isinstance(self.net, Seq2Seq):
            if target is None:
                raise TaskError("An encoder-decoder scores a target given a source: score(text, target).")
            start = self.settings.decoder_start_token_id or 0
            written = [start, *self.tokenizer.encode(target)]
            logits = self(ids, written)
        else:
            written = ids
            if len(written) < 2:
                return Scores([], [], [])
            logits = self(written)
        scored = torch.tensor(written[1:], device=logits.device)
        P = logits[0, :-1].float().log_softmax(-1)
        logprobs = P[torch.arange(len(scored)), scored]
        return Scores(logprobs.tolist(), written[1:], self.tokenizer.pieces(written[1:]))

    def _encode_all(self, texts: Sequence[str | Sequence[int]], limit: int | None = None) -> list[list[int]]:
        """The ids of each text; one that is given as ids is taken as it is."""
        encoded = iter(self.tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
        rows = [next(encoded) if isinstance(text, str) else self._prompts(text, False)[0] for text in texts]
        return [self._fit(ids or [self._first_token()], limit) for ids in rows]

    def _fit(self, ids: list[int], limit: int | None = None) -> list[int]:
        """Cut to the model's length, keeping the end token where there is one."""
        most = min(limit or self.spec.context, self.spec.source_context)
        if len(ids) <= most:
            return ids
        ends = {self.tokenizer.sep_id, self.tokenizer.eos_id}
        return [*ids[: most - 1], ids[-1]] if ids[-1] in ends else ids[:most]

    def _run(self, rows: list[list[int]], run: Any, progress: Progress | None) -> list[Tensor]:
        return run_batched(rows, run, pad_id=self.spec.pad_id or 0, device=self.device, progress=progress)

    def _need(self, kind: str, wish: str) -> None:
        if self.spec.kind != kind or self.spec.head.kind != "lm":
            needed = "an encoder-decoder (BART, Marian, …)" if kind != "decoder" else "a decoder (GPT-2, Llama, …)"
            raise TaskError(f"{self.name} cannot {wish}: {self._what_it_is()}; this needs {needed} that writes text.")

    def _need_head(self, head: str, wish: str) -> None:
        if self.spec.head.kind != head:
            trained = {"classify": "SequenceClassification", "tag": "TokenClassification", "mlm": "MaskedLM"}[head]
            raise TaskError(f"{self.name} cannot {wish}: {self._what_it_is()}; this needs a …For{trained} model.")

    def _what_it_is(self) -> str:
        heads = {"none": "no head", "lm": "a language-modelling head", "mlm": "a masked-language-modelling head"}
        kind, head = self.spec.kind, self.spec.head.kind
        return f"it is {'a' if kind == 'decoder' else 'an'} {kind} with {heads.get(head, f'a head to {head}')}"

    # ── looking and keeping ─────────────────────────────────────────────────────────────────────────────────────────

    def trace(
        self,
        text: str | Sequence[int],
        target: str | Sequence[int] | None = None,
        *,
        max_new_tokens: int = 0,
        sites: Sequence[str] | None = None,
        memory_limit: int | None = None,
        **sampling: Any,
    ) -> "Trace":
        """Every number of a run, by name, and why each is what it is.

        With `max_new_tokens` the run goes on over text the model writes (`trace.steps` says how each token was chosen). An
        encoder-decoder writes its own target if none is given. `sites` are patterns of the nodes that will be looked at.
        """
        from regard.explain.trace import MEMORY_LIMIT, Step, trace

        spec = self.spec
        if target is not None and (spec.kind != "encoder-decoder" or max_new_tokens):
            wrong = "it is given or written (max_new_tokens)" if max_new_tokens else f"{self.name} has none"
            raise TaskError(f"A target is what an encoder-decoder is taken to have written: {wrong}.")
        ids, target_ids, written = self._ids(text, spec.source_vocab, spec.source_context), None, list[Token]()
        ids = ids or [self._first_token()]
        writes = spec.kind == "encoder-decoder" and spec.head.kind == "lm" and target is None
        if writes or max_new_tokens:
            most = {"max_new_tokens": max_new_tokens} if max_new_tokens else {}
            written = list(self.stream_tokens(ids, alternatives=10, **{"temperature": 0, **most, **sampling}))
        if spec.kind == "encoder-decoder":
            start, given = self.settings.decoder_start_token_id or 0, ids if target is None else target
            said = [token.id for token in written] if writes else self._ids(given, spec.n_vocab, spec.context - 1)
            target_ids = [start, *(said[:-1] if said and said[-1] in spec.eos_ids else said)]
        else:
            ids = [*ids, *(token.id for token in written)]
        limit = MEMORY_LIMIT if memory_limit is None else memory_limit
        found = trace(
            self.net,
            ids,
            self._tokenizer,
            target_ids,
            sites=sites,
            memory_limit=limit,
            name=self.name,
            text=text if isinstance(text, str) else None,
        )
        begin = 1 if target_ids is not None else len(ids) - len(written)
        for i, token in enumerate(written):
            likely = tuple((found.pieces([id])[0], id, math.exp(p)) for id, p in token.alternatives)
            piece = found.pieces([token.id])[0]
            found.steps.append(
                Step(begin + i, token.id, piece, math.exp(token.logprob), likely, begin + i - 1 if i else 0)
            )
        return found

    def _ids(self, given: str | Sequence[int], n_vocab: int, limit: int) -> list[int]:
        """A text's ids, or the given ones, checked. Where masks are filled, they may be spelt in the text."""
        if isinstance(given, str):
            ids = self.tokenizer.encode(given, allow_control=self.spec.head.kind == "mlm")
        else:
            try:
                ids = [operator.index(i) for i in given]
            except TypeError:
                raise TaskError("What is traced is a text, or token ids, which are whole numbers.") from None
        if ids:
            self._batch(ids, "ids", n_vocab, limit)
        return ids

    def evaluate(
        self,
        data: str | Sequence[str],
        *,
        task: str | None = None,
        most: int | None = None,
        progress: Any = lambda done, total: None,
        **given: Any,
    ) -> dict[str, float]:
        """The metrics of the model's task (loss, perplexity, accuracy, BLEU, chrF …) on the examples in files."""
        from regard.train.evaluate import evaluate

        files = [data] if isinstance(data, str) else list(data)
        said = {name: value for name, value in given.items() if value is not None}
        return evaluate(
            self.net,
            self.opened,
            self.tokenizer,
            files,
            task=task,
            most=most,
            given=said,
            progress=progress,
            write=write_targets,
        )

    def rounding_cost(self, quantize: str, text: str | None = None, name: str = "a text") -> "Cost":
        """What storing the matrices as `quantize` would change, measured on a text (this package's own unless given):
        perplexity, the largest difference of logits; of an encoder without a head the cosine of vectors."""
        from regard.engine.cost import measure, rows_of
        from regard.engine.passage import PASSAGE
        from regard.store.rounding import rounded_twin
        from regard.store.save import number_format

        format = number_format(quantize)
        rows = rows_of(PASSAGE if text is None else text, self.tokenizer, self.spec)
        return measure(
            self.net,
            rounded_twin(self.net, self.spec, format),
            rows,
            format=format,
            text="the package's own passage" if text is None else name,
            mask=self.tokenizer.mask_id,
            pooling=self.pooling,
        )

    def save(
        self, directory: str | Path, format: str = "hf", *, quantize: str | None = None, cost: "Cost | None" = None
    ) -> Path:
        """Write the model: "hf" (a directory for `transformers`), "gguf" (one file, for llama.cpp) or, for what GGUF has no
        architecture for, "blocks" (a directory that opens here).

        quantize: for gguf and blocks f16, q8, q4, …; else float32. cost: as measured, to be kept in the file.
        """
        from regard.store.save import number_format, save_blocks, save_directory, save_gguf

        path, chosen = Path(directory), number_format(quantize)
        net, spec, config, tokenizer = self.net, self.spec, self.config, self._tokenizer
        remarks = cost.metadata() if cost is not None else {}
        if format == "gguf":
            return save_gguf(path, net, spec, self._family, config, tokenizer, self.pooling, chosen, remarks)
        if format == "blocks":
            said = self.opened.generation
            save_blocks(path, net, spec, config, tokenizer, said, self.pooling, chosen, remarks)
            return path
        if format != "hf":
            raise ConfigError(f"format is {format!r}; it can be hf, gguf or blocks.")
        if quantize is not None:
            raise ConfigError("Hugging Face's layout holds no blocks: quantize goes with format='gguf' or 'blocks'.")
        save_directory(path, net, spec, self._family, config, tokenizer, self.opened.generation, self.pooling)
        return path


def count_parameters(spec: Spec) -> int:
    return sum(p.numel() for p in blueprint(spec).parameters())


def make_rows(
    settings: Settings, prompts: Sequence[Sequence[int]], rooms: Sequence[int]
) -> tuple[list[RowState], list[int]]:
    """A row per sample (one per prompt for beam search), and the prompt each continues."""
    if settings.num_beams > 1:
        return [RowState(settings, p, limit=room) for p, room in zip(prompts, rooms, strict=True)], []
    grouped = [start(settings, p, room) for p, room in zip(prompts, rooms, strict=True)]
    return [row for group in grouped for row in group], [i for i, group in enumerate(grouped) for _ in group]


def is_single(prompt: str | Sequence[str] | Sequence[int]) -> bool:
    return isinstance(prompt, str) or not all(isinstance(p, str) for p in prompt)


# ── training ────────────────────────────────────────────────────────────────────────────────────────────────────────


def train_settings(task: str, file: Path | None, given: Mapping[str, Any], resume: bool = False) -> "TrainSettings":
    """The settings of a run: what was given, over a TOML file, over the task's defaults; to resume, over the run's own."""
    from regard.train.settings import settings_from
    from regard.train.task import task_named

    kind = task_named(task)
    own = Path(given.get("out") or "") / "run.toml"
    settings = settings_from(task, kind.defaults, own if resume and file is None and own.exists() else file, given)
    if not settings.data:
        raise ConfigError("There is nothing to train on: give --data.")
    if not settings.out:
        raise ConfigError("There is no place for the run: give --out.")
    return settings


def train_with(settings: "TrainSettings", *, resume: bool = False, **watchers: Any) -> Path:
    """Train; the run's directory. `tell` hears of every step, `progress` of the tokenising."""
    from regard.train.start import train

    return train(settings, resume=resume, write=write_targets, **watchers)


@torch.inference_mode()
def write_targets(net: Network, sources: list[list[int]], room: int) -> list[list[int]]:
    """What an encoder-decoder in training writes for each source, with four beams."""
    assert isinstance(net, Seq2Seq)
    start_id = net.spec.start_id or 0
    settings = Settings(num_beams=4, eos_token_id=net.spec.eos_ids, seed=0)
    rows = [RowState(settings, [start_id], limit=room) for _ in sources]
    stepper = Translator(net, sources, [[start_id]] * len(sources), room, lay_out=False)
    return [[i for i in best[0].ids if i not in net.spec.eos_ids] for best in search(stepper, rows)]
