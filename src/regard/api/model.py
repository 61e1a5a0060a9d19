"""`regard.load(where)` → a `Model`: one object for what a person wants to do with a transformer.

It holds a network, its spec and its tokenizer, and hands each wish to the room that grants it. Heavy rooms are entered
when they are needed.
"""

import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.engine.choose import cache_format, engine_of_file, wanted
from regard.engine.fast import Engine, FastDecoder, FastTranslator
from regard.engine.generate import Answer, Token, generate, search
from regard.engine.lanes import Lanes, NativeLanes, bytes_per_token, native_bytes
from regard.engine.sample import RowState, start
from regard.engine.settings import Settings
from regard.engine.stepper import Stepper
from regard.errors import ConfigError, GenerationError, TaskError, TokenizerError
from regard.model.registry import Family
from regard.model.shapes import shapes
from regard.model.spec import Spec
from regard.store.open import Opened, Pooling, open_model
from regard.text.chat import encode_chat
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # PyTorch, and the rooms that need it, are entered when somebody wants what is in them
    import torch
    from torch import Tensor

    from regard.api.read import Ids, Scores, Tagged
    from regard.engine.cost import Cost
    from regard.engine.encode import Progress
    from regard.engine.of_network import Rounded
    from regard.explain.trace import Trace
    from regard.model.transformer import Network

DTYPES = ("float32", "bfloat16", "float16")
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # one of which a GPU that PyTorch knows has, on Linux
ANSWER_LENGTH = 256  # new tokens, unless the caller or the model's own settings say


def load(
    where: str | Path,
    *,
    dtype: "str | torch.dtype | None" = None,
    device: str = "auto",
    quantize: str | None = None,
    engine: str = "auto",
    cache: str | None = None,
    progress: Any = None,
) -> "Model":
    """A model by name, directory, .gguf file or training run.

    dtype: float32 unless given, in which results equal Hugging Face's. device: auto takes a GPU if there is one.
    quantize: "q8" or "q4" rounds the matrices as those formats store them. engine: "auto" writes and embeds with the native
    engine where it can, "torch" never. cache: how the native engine keeps keys and values, "f32", "f16" or "q8"; as exactly
    as the weights unless given. progress: called with weights done, in all.

    A GGUF file's 16-, 8- and 4-bit weights are computed with as they are, unless a dtype is given; its network, in
    float32, is then only made when somebody looks into it.
    """
    kind, kept = choose_dtype(dtype), cache_format(cache)
    opened, chosen = open_model(where), choose_device(device)
    native = wanted(engine, opened.spec, chosen)
    if native and dtype is None and quantize is None and (packed := engine_of_file(opened, progress, kept)):
        return Model(None, opened, str(where), native=True, engine=packed, cache=kept)
    import torch

    from regard.store.network import load_network

    net, rounded = load_network(opened, getattr(torch, kind), chosen, progress), None
    if quantize is not None:
        from regard.store.rounding import round_weights

        rounded = round_weights(net, quantize)
    return Model(net, opened, str(where), native=native, rounded=rounded, cache=kept)


def choose_dtype(dtype: "str | torch.dtype | None") -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; it can be {', '.join(DTYPES)}.")
    return name


def choose_device(device: str) -> str:
    if device == "cpu" or (device == "auto" and sys.platform == "linux" and not any(map(os.path.exists, DRIVERS))):
        return "cpu"
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.ones(1, device=device).item()  # a device that torch knows, and that is here and computes
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(f"device is {device!r}, which cannot be used here; auto takes what there is.") from None
    return str(torch.device(device))


def watched() -> bool:
    """Whether somebody looks at what the network computes, which only PyTorch shows."""
    see = sys.modules.get("regard.nn.see")
    return see is not None and bool(see.watched())


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
        net: "Network | None",
        opened: Opened,
        name: str = "",
        *,
        native: bool = False,
        engine: Engine | None = None,
        rounded: "Rounded | None" = None,
        cache: str | None = None,
    ) -> None:
        """net: None reads it from the files when it is first looked at. native: the native engine writes and embeds;
        `engine`, if it is there already, else packed when needed, with `rounded` matrices as their formats store them and
        keys and values in the format `cache`."""
        self._net = net
        self._native, self._engine, self._rounded, self._cache = native, engine, rounded, cache
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
    def net(self) -> "Network":
        """The network itself, which can be watched, edited and trained."""
        with self._reading:
            if self._net is None:
                from regard.engine.of_network import fingerprint
                from regard.store.network import load_network

                net = load_network(self.opened)
                self._packed, self._net = fingerprint(net), net
        return self._net

    @property
    def engine(self) -> Engine | None:
        """The native engine with the weights as they are now. None: PyTorch computes, as it does when somebody watches."""
        if not self._native or watched():
            return None
        if self._net is not None:
            from regard.engine.of_network import engine_of_network, fingerprint

            if (now := fingerprint(self._net)) != self._packed:
                rounded = self._rounded if self._packed is None else None  # rewritten since
                self._engine, self._packed = engine_of_network(self._net, self.spec, rounded, cache=self._cache), now
        return self._engine

    def prepare(self) -> None:
        """Lay the weights out for writing now, instead of when the first text is asked for."""
        if self.engine is None and self.spec.head.kind == "lm":
            from regard.engine.decode import lay_out_for_decoding

            lay_out_for_decoding(self.net)

    @property
    def nbytes(self) -> int:
        """What the weights take now: the network's, the native engine's, or both."""
        network = 0 if self._net is None else sum(p.numel() * p.element_size() for p in self._net.parameters())
        return network + (0 if self._engine is None else self._engine.arena.size)

    def __repr__(self) -> str:
        n = count_parameters(self.spec) if self._net is None else sum(p.numel() for p in self._net.parameters())
        return f"<regard.Model {self.name}: {self.family}, {self.spec.kind}, {n:,} parameters>"

    @property
    def family(self) -> str:
        return self._family.name

    @property
    def device(self) -> "torch.device":
        import torch

        return torch.device("cpu") if self._net is None else next(self._net.parameters()).device

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise TokenizerError(f"{self.path} has no tokenizer (tokenizer.json), so only ids can be used.")
        return self._tokenizer

    # ── ids in, numbers out ─────────────────────────────────────────────────────────────────────────────────────────

    # ── ids in, numbers out ─────────────────────────────────────────────────────────────────────────────────────────

    def __call__(
        self, ids: "Ids", target_ids: "Ids | None" = None, *, mask: "Ids | None" = None, types: "Ids | None" = None
    ) -> "Tensor":
        """Decoder: logits (B, N, n_vocab). Encoder: states (B, N, d), or its head's logits. Encoder-decoder: logits for
        the target (B, M, n_vocab). `mask` (B, N) is 1 where an id is a token and 0 where it is padding."""
        from regard.api.read import run

        return run(self, ids, target_ids, mask, types)

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
        self, texts: str | Sequence[str], num_beams: int = 4, *, progress: "Progress | None" = None, **given: Any
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
        ids = ids or [self.first_token()]
        return start(settings, ids, settings.room(len(ids), room))

    def slot_bytes(self, room: int) -> int:
        """What the keys and values of a text of so many tokens take."""
        if (engine := self.engine) is not None:
            return native_bytes(engine, room)
        return room * bytes_per_token(self.spec.stacks["decoder"], next(self.net.parameters()).element_size())

    def lanes(self, slots: int, room: int) -> Lanes:
        """Slots for a scheduler, on the fastest engine that knows this network."""
        self._need("decoder", "continue a text")
        if (engine := self.engine) is not None:
            return NativeLanes(engine, slots, room)
        from regard.engine.torch_lanes import TorchLanes
        from regard.model.transformer import DecoderOnly

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
        prompts = [ids or [self.first_token()] for ids in prompts]
        rooms = [settings.room(len(ids), self.spec.context) for ids in prompts]
        rows, prompt_of = make_rows(settings, prompts, rooms)
        return Asked(self._decoder(prompts, max(rooms)), rows, prompt_of, settings, len(prompts))

    def _decoder(self, prompts: list[list[int]], room: int) -> Stepper:
        if (engine := self.engine) is not None:
            return FastDecoder(engine, prompts, room)
        from regard.engine.decode import Decoder
        from regard.model.transformer import DecoderOnly

        assert isinstance(self.net, DecoderOnly)
        return Decoder(self.net, prompts, room)

    def _translator(self, sources: list[list[int]], starts: list[list[int]], room: int) -> Stepper:
        if (engine := self.engine) is not None:
            return FastTranslator(engine, sources, starts, room)
        from regard.engine.decode import Translator
        from regard.model.transformer import Seq2Seq

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
        return Asked(self._translator(sources, starts, room), rows, prompt_of, settings, len(sources))

    @cached_property
    def unspeakable(self) -> tuple[int, ...]:
        """Rows of the embedding that pad it to a round number: no token has their ids, so none may be generated."""
        if self._tokenizer is None or self._tokenizer.n_vocab == len(self._tokenizer.vocab) == self.spec.n_vocab:
            return ()
        return tuple(sorted(set(range(self.spec.n_vocab)) - set(self._tokenizer.vocab.values())))

    def first_token(self) -> int:
        """What stands for an empty text: the token that begins texts, or ends them."""
        candidates = [self._tokenizer.bos_id if self._tokenizer else None, self.spec.bos_id, *self.spec.eos_ids]
        first = next((i for i in candidates if i is not None and i < self.spec.n_vocab), None)
        if first is None:
            raise GenerationError("The text is empty, and this model has no token to begin with.")
        return first

    # ── texts in, answers out ───────────────────────────────────────────────────────────────────────────────────────

    def embed(self, texts: str | Sequence[str | Sequence[int]], *, progress: "Progress | None" = None) -> "Tensor":
        """(n, d): one vector per text, pooled as the model's files say, else the mean of its states at length 1.

        A text may be given as its ids, control tokens included.
        """
        from regard.api.read import embed

        return embed(self, [texts] if isinstance(texts, str) else list(texts), progress)

    def classify(self, texts: str | Sequence[str], *, progress: "Progress | None" = None) -> list[dict[str, float]]:
        """For each text, label → probability, likeliest first."""
        from regard.api.read import classify

        self._need_head("classify", "classify")
        return classify(self, [texts] if isinstance(texts, str) else list(texts), progress)

    def tag(self, texts: str | Sequence[str], *, progress: "Progress | None" = None) -> "list[list[Tagged]]":
        """For each text its words with their tags; a word's first piece decides."""
        from regard.api.read import tag

        self._need_head("tag", "tag")
        return tag(self, [texts] if isinstance(texts, str) else list(texts), progress)

    def fill(self, text: str, top_k: int = 5) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """The likeliest tokens for the mask in the text; for several masks, a list for each."""
        from regard.api.read import fill

        self._need_head("mlm", "fill masks")
        return fill(self, text, top_k)

    def score(self, text: str, target: str | None = None) -> "Scores":
        """The log-probability of each token given those before it (of the target, for an encoder-decoder)."""
        from regard.api.read import score

        if self.spec.head.kind != "lm":
            raise TaskError(f"{self.name} has no language-modelling head, so it cannot score text.")
        return score(self, text, target)

    def encode_all(self, texts: Sequence[str | Sequence[int]], limit: int | None = None) -> list[list[int]]:
        """The ids of each text; one that is given as ids is taken as it is."""
        encoded = iter(self.tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
        rows = [next(encoded) if isinstance(text, str) else self._prompts(text, False)[0] for text in texts]
        return [self.fit(ids or [self.first_token()], limit) for ids in rows]

    def fit(self, ids: list[int], limit: int | None = None) -> list[int]:
        """Cut to the model's length, keeping the end token where there is one."""
        most = min(limit or self.spec.context, self.spec.source_context)
        if len(ids) <= most:
            return ids
        ends = {self.tokenizer.sep_id, self.tokenizer.eos_id}
        return [*ids[: most - 1], ids[-1]] if ids[-1] in ends else ids[:most]

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
        from regard.api.look import trace

        return trace(self, text, target, max_new_tokens, sites, memory_limit, sampling)

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
        from regard.api.training import write_targets
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
    tied = {name for group in spec.tied for name in group[1:]}
    return sum(math.prod(shape) for name, shape in shapes(spec).items() if name not in tied)


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
