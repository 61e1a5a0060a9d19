"""`regard.load(where)` → a `Model`: one object for what a person wants to do with a transformer.

It holds a network, its spec and its tokenizer, and hands each wish to the room that grants it. Heavy rooms are entered
when they are needed.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.api import ask
from regard.api.place import choose_device, choose_dtype
from regard.engine.choose import cache_format, engine_of_file, wanted
from regard.engine.fast import Engine
from regard.engine.generate import Answer, Token
from regard.engine.lanes import Lanes
from regard.engine.sample import RowState
from regard.engine.settings import Settings
from regard.errors import GenerationError, TaskError, TokenizerError
from regard.model.registry import Family
from regard.model.shapes import count_parameters
from regard.model.spec import Spec
from regard.store.gguf import GGUF
from regard.store.open import Opened, Pooling, open_files
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

    Weights are packed for the native engine as they lie in the file: a GGUF file's 16, 8 and 4 bits, unless a dtype is
    given, and a checkpoint's 32 or 16, which are computed with in float32. The network, in float32, is then only made when
    somebody looks into it.
    """
    kind, kept = choose_dtype(dtype), cache_format(cache)
    opened, chosen = open_files(where), choose_device(device)
    native = wanted(engine, opened.spec, chosen)
    as_stored = dtype is None or (kind == "float32" and not isinstance(opened.file, GGUF))
    if native and as_stored and quantize is None:
        packed = engine_of_file(opened, progress, kept, meanwhile=lambda: opened.tokenizer)
        if packed is not None:
            return Model(None, opened, str(where), native=True, engine=packed, cache=kept)
    import torch

    from regard.store.network import load_network

    net, rounded = load_network(opened, getattr(torch, kind), chosen, progress), None
    if quantize is not None:
        from regard.store.rounding import round_weights

        rounded = round_weights(net, quantize)
    return Model(net, opened, str(where), native=native, rounded=rounded, cache=kept)


def watched() -> bool:
    """Whether somebody looks at what the network computes, which only PyTorch shows."""
    see = sys.modules.get("regard.nn.see")
    return see is not None and bool(see.watched())


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
        self.laying_out = threading.Lock()  # held while the weights are made ready for writing
        self._reading = threading.Lock()

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
        return ask.own_settings(self)

    def generate(self, prompt: str | Sequence[str] | Sequence[int], **given: Any) -> Any:
        """The continuation of a prompt (for an encoder-decoder: what it writes for that source).

        One prompt and n=1: a string. n > 1: a list of strings. A list of prompts: a list of what each would have given.
        Settings are those of `Settings`: temperature=0 is greedy, and an answer has at most 256 tokens unless told.
        `control=True` reads control tokens that are spelt in the prompt.
        """
        answers = [[a.text for a in each] for each in self.answers(prompt, **given)]
        shaped = [each[0] if len(each) == 1 else each for each in answers]
        return shaped[0] if ask.is_single(prompt) else shaped

    def answers(self, prompt: str | Sequence[str] | Sequence[int], **given: Any) -> list[list[Answer]]:
        """As `generate`, with ids, log-probabilities and why each answer ended: a list of n per prompt."""
        return ask.answers(self, prompt, given)

    def stream(self, prompt: str | Sequence[int], **given: Any) -> Iterator[str]:
        """The same text as `generate`, piece by piece, never half a character."""
        for token in self.stream_tokens(prompt, **given):
            if token.text:
                yield token.text

    def stream_tokens(self, prompt: str | Sequence[int], *, alternatives: int = 0, **given: Any) -> Iterator[Token]:
        """Tokens as they are chosen, each with its log-probability and, if asked for, the likeliest alternatives."""
        return ask.tokens(self, prompt, alternatives, given)

    def chat(self, messages: str | Sequence[Mapping[str, str]], **given: Any) -> str:
        """The assistant's next message. A string stands for one message from the user."""
        text: str = self.generate(self.chat_ids(messages), **given)
        return text

    def chat_ids(self, messages: str | Sequence[Mapping[str, str]], *, context: int | None = None) -> list[int]:
        """The conversation as the model's own template writes it, ready for its answer; refused if it is longer than the
        context."""
        self._need("decoder", "chat")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        most = min(context or self.spec.context, self.spec.context)
        return encode_chat(self.tokenizer, [dict(m) for m in messages], most=most)

    def translate(
        self, texts: str | Sequence[str], num_beams: int = 4, *, progress: "Progress | None" = None, **given: Any
    ) -> list[str]:
        """What an encoder-decoder writes for each text."""
        self._need("encoder-decoder", "translate")
        sources = [texts] if isinstance(texts, str) else list(texts)
        return ask.translations(self, sources, progress, {**given, "num_beams": num_beams})

    def rows(self, prompt: Sequence[int], *, context: int | None = None, **given: Any) -> list[RowState]:
        """The `n` rows of a request, checked and ready for a scheduler whose slots hold `context` tokens.

        Unless told how long it may be, an answer may fill the context.
        """
        self._need("decoder", "continue a text")
        return ask.rows(self, prompt, context, given)

    def slot_bytes(self, room: int) -> int:
        """What the keys and values of a text of so many tokens take."""
        return ask.slot_bytes(self, room)

    def lanes(self, slots: int, room: int) -> Lanes:
        """Slots for a scheduler, on the fastest engine that knows this network."""
        self._need("decoder", "continue a text")
        return ask.lanes(self, slots, room)

    @cached_property
    def unspeakable(self) -> tuple[int, ...]:
        """Rows of the embedding that pad it to a round number: no token has their ids, so none may be generated."""
        return () if self._tokenizer is None else self._tokenizer.without_token(self.spec.n_vocab)

    def first_token(self) -> int:
        """What stands for an empty text: the token that begins texts, or ends them."""
        candidates = [self._tokenizer.bos_id if self._tokenizer else None, self.spec.bos_id, *self.spec.eos_ids]
        first = next((i for i in candidates if i is not None and i < self.spec.n_vocab), None)
        if first is None:
            raise GenerationError("The text is empty, and this model has no token to begin with.")
        return first

    # ── texts in, answers out ───────────────────────────────────────────────────────────────────────────────────────

    def embed(
        self,
        texts: str | Sequence[str | Sequence[int]],
        *,
        truncate: bool = False,
        progress: "Progress | None" = None,
    ) -> "Tensor":
        """(n, d): one vector per text, pooled as the model's files say, else the mean of its states at length 1.

        A text may be given as its ids, control tokens included. One that is longer than the model reads is refused
        (`TooLong`) unless `truncate`, here and below, has it cut; the log says how many were. Where the model's files say
        that texts are cut to a length (`max_seq_length`), they are, as by sentence-transformers, and the log says so, too.
        """
        from regard.api.read import embed

        return embed(self, [texts] if isinstance(texts, str) else list(texts), truncate, progress)

    def classify(
        self, texts: str | Sequence[str], *, truncate: bool = False, progress: "Progress | None" = None
    ) -> list[dict[str, float]]:
        """For each text, label → probability, likeliest first."""
        from regard.api.read import classify

        self._need_head("classify", "classify")
        return classify(self, [texts] if isinstance(texts, str) else list(texts), truncate, progress)

    def tag(
        self, texts: str | Sequence[str], *, truncate: bool = False, progress: "Progress | None" = None
    ) -> "list[list[Tagged]]":
        """For each text its words with their tags; a word's first piece decides."""
        from regard.api.read import tag

        self._need_head("tag", "tag")
        return tag(self, [texts] if isinstance(texts, str) else list(texts), truncate, progress)

    def fill(self, text: str, top_k: int = 5) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """The likeliest tokens for the mask in the text; for several masks, a list for each."""
        from regard.api.read import fill

        self._need_head("mlm", "fill masks")
        return fill(self, text, top_k)

    def score(self, text: str, target: str | None = None) -> "Scores":
        """The log-probability of each token given those before it; with a target, of the target's tokens.

        To an encoder-decoder the text is the source. A decoder reads both as one text, encoded as one, so that no special
        token stands between them: the target's tokens begin where this encoding departs from that of the text alone (one
        with characters of both is the target's). Where none come before, they follow the token that begins texts.
        """
        from regard.api.read import score

        if self.spec.head.kind != "lm":
            raise TaskError(f"{self.name} has no language-modelling head, so it cannot score text.")
        return score(self, text, target)

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
        edits: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> "Trace":
        """Every number of a run, by name, and why each is what it is.

        With `max_new_tokens` the run goes on over text the model writes (`trace.steps` says how each token was chosen). An
        encoder-decoder writes its own target if none is given. `sites` are patterns of the nodes that will be looked at.
        `edits` are made as by `trace.edit`, on the same text.
        """
        from regard.api.look import trace

        return trace(self, text, target, max_new_tokens, sites, memory_limit, edits, sampling)

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
        from regard.api.training import evaluate

        return evaluate(self, [data] if isinstance(data, str) else list(data), task, most, progress, given)

    def rounding_cost(self, quantize: str, text: str | None = None, name: str = "a text") -> "Cost":
        """What storing the matrices as `quantize` would change, measured on a text (this package's own unless given):
        perplexity, the largest difference of logits; of an encoder without a head the cosine of vectors."""
        from regard.api.keep import rounding_cost

        return rounding_cost(self, quantize, text, name)

    def save(
        self, directory: str | Path, format: str = "hf", *, quantize: str | None = None, cost: "Cost | None" = None
    ) -> Path:
        """Write the model: "hf" (a directory for `transformers`), "gguf" (one file, for llama.cpp) or, for what GGUF has no
        architecture for, "blocks" (a directory that opens here).

        quantize: for gguf and blocks f16, q8, q4, …; else float32. cost: as measured, to be kept in the file.
        """
        from regard.api.keep import save

        return save(self, Path(directory), format, quantize, cost)
