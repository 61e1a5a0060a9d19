"""`Model`: one object for everything that one does with a transformer, as `regard.load` returns it.

It holds a network, its spec and its tokenizer, and delegates each method to the package that implements it. Packages with
heavy imports are imported when they are needed.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from regard.api import generation
from regard.engine.generate import Answer, Token
from regard.engine.native_engine import NativeEngine
from regard.engine.reference_decoder import prepare_for_decoding
from regard.engine.sampling import RowState
from regard.engine.settings import Settings
from regard.engine.slots import Slots
from regard.errors import GenerationError, TaskError, TokenizerError, require
from regard.model.reference import Network, reference
from regard.model.registry import Family
from regard.model.shapes import count_parameters
from regard.model.spec import Spec
from regard.model.transformer import EncoderOnly
from regard.nn.see import watched
from regard.store.arrays import load_arrays
from regard.store.open_model import Opened, Pooling
from regard.text.chat_template import encode_chat
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # PyTorch, and the packages that need it, are imported on first use
    from regard.api.inference import Ids, Scores, Tagged
    from regard.api.trace import Trace
    from regard.engine.encode import Progress
    from regard.engine.pack_network import Quantized
    from regard.engine.quality.quantization_cost import QuantizationCost

HEAD_PARTS = ("pooler", "head", "unembed")  # of an encoder: what follows its last states


class Model:
    """A network with its weights and its tokenizer, as `regard.load` returns it.

    `spec` describes the network, `config` is its config.json, `path` where its files are, `name` what messages call it.
    """

    def __init__(
        self,
        net: Network | None,
        opened: Opened,
        name: str = "",
        *,
        arrays: dict[str, NDArray[np.float32]] | None = None,
        native: bool = False,
        engine: NativeEngine | None = None,
        rounded: "Quantized | None" = None,
        by_torch: bool = False,
        cache: str | None = None,
    ) -> None:
        """The weights are those of `net`, PyTorch's module, or `arrays`; without either they are read from the files on
        first use. native: the native engine generates and embeds: `engine` if given, else one packed when needed, with the
        quantized matrices `rounded` and a KV cache of format `cache`. by_torch: PyTorch computes what the native engine
        does not."""
        self._net, self._arrays, self._by_torch = net, arrays, by_torch
        self._reference: Network | None = None
        self._head_arrays: dict[str, NDArray[np.float32]] = {}  # an encoder's head, if only its weights were read
        self._loaded_version: Any = None  # of the weights, when the module was made
        self._native, self._engine, self._rounded, self._cache = native, engine, rounded, cache
        self._packed_version: Any = None if engine is None else "as loaded"  # of the weights, when they were packed
        self.opened = opened
        self.spec: Spec = opened.spec
        self.config: dict[str, Any] = opened.config
        self.path: Path = opened.path
        self.name: str = Path(name or opened.path).resolve().name  # in messages
        self.pooling: Pooling = opened.pooling
        self._family: Family = opened.family
        self._tokenizer: Tokenizer | None = opened.tokenizer
        self.packing = threading.Lock()  # held while the weights are packed for generation
        self._loading = threading.Lock()

    @property
    def net(self) -> Network:
        """The network as a PyTorch module, which can be trained, differentiated and moved to a GPU."""
        with self._loading:
            if self._net is None:
                require("torch", "model.net, the network as a module to train or to move to a GPU,")
                from regard.engine.pack_network import weights_version
                from regard.store.network import load_network, network_of_arrays

                net = load_network(self.opened) if self._arrays is None else network_of_arrays(self.spec, self._arrays)
                self._loaded_version = weights_version(net)
                self._packed_version, self._net = None if self._packed_version is None else self._loaded_version, net
                # from now on the module holds the weights
                self._arrays, self._reference, self._head_arrays = None, None, {}
        return self._net

    @property
    def arrays(self) -> Mapping[str, NDArray[np.float32]]:
        """The current weights by name, in float32."""
        with self._loading:
            return self._as_arrays()

    @property
    def weights(self) -> Mapping[str, Any]:
        """The current weights in their own number format: PyTorch parameters if the model has a module."""
        if self._net is None:
            return self.arrays
        from regard.model.build import parameters_of

        return parameters_of(self._net)

    def _as_arrays(self) -> dict[str, NDArray[np.float32]]:
        if self._net is not None:
            from regard.model.build import arrays_of

            return arrays_of(self._net)
        if self._arrays is None:
            self._arrays = load_arrays(self.opened)
        return self._arrays

    @property
    def reference(self) -> Network:
        """The network on numpy arrays: the definition, without PyTorch, with the current weights."""
        with self._loading:
            if self._net is not None:
                return reference(self.spec, self._as_arrays())
            if self._reference is None:
                self._reference = reference(self.spec, self._as_arrays())
            return self._reference

    def version(self) -> Any:
        """A value that changes whenever the weights are modified; None while they are as loaded."""
        if self._net is None:
            return None
        from regard.engine.pack_network import weights_version

        now = weights_version(self._net)
        return None if now == self._loaded_version else now

    @property
    def network(self) -> Network:
        """The network that computes what the native engine does not: the reference, or PyTorch's module if requested."""
        if self._by_torch:
            return self.net
        first = None if self._net is None else next(self._net.parameters())
        moved = first is not None and (str(first.device) != "cpu" or str(first.dtype) != "torch.float32")
        return self.net if moved else self.reference

    @property
    def head(self) -> EncoderOnly:
        """An encoder of which only the head (what follows its last states) need have weights, to apply to given states."""
        with self._loading:
            if self._net is None and self._arrays is None:
                if not self._head_arrays:
                    self._head_arrays = load_arrays(self.opened, only=lambda name: name.partition(".")[0] in HEAD_PARTS)
                return cast(EncoderOnly, reference(self.spec, self._head_arrays))
        return cast(EncoderOnly, self.reference)

    @property
    def engine(self) -> NativeEngine | None:
        """The native engine with the current weights, or None: then `network` computes, as also while an observer is
        registered."""
        if not self._native or watched():
            return None
        if self._net is not None:
            from regard.engine.pack_network import engine_of_network, weights_version

            if (now := weights_version(self._net)) != self._packed_version:
                rounded = self._rounded if self._packed_version is None else None  # stale once the weights have changed
                self._engine, self._packed_version = (
                    engine_of_network(self._net, self.spec, rounded, cache=self._cache),
                    now,
                )
        elif self._packed_version is None:
            from regard.engine.pack_network import engine_of_network

            packed = engine_of_network(self.arrays, self.spec, self._rounded, cache=self._cache)
            self._engine, self._packed_version = packed, "as loaded"
        return self._engine

    def prepare(self) -> None:
        """Pack the weights for generation now, instead of on the first request."""
        if self.engine is None and self.spec.head.kind == "lm":
            prepare_for_decoding(self.network)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in memory: the network's, the native engine's, or both."""
        network = 0 if self._net is None else sum(p.numel() * p.element_size() for p in self._net.parameters())
        arrays = {id(X): X.nbytes for X in (self._arrays or self._head_arrays).values()}
        return network + sum(arrays.values()) + (0 if self._engine is None else self._engine.arena.size)

    def __repr__(self) -> str:
        n = count_parameters(self.spec) if self._net is None else sum(p.numel() for p in self._net.parameters())
        return f"<regard.Model {self.name}: {self.family}, {self.spec.kind}, {n:,} parameters>"

    @property
    def family(self) -> str:
        """The architecture: "gpt2", "bert", "llama", …"""
        return self._family.name

    @property
    def device(self) -> str:
        """Where PyTorch's module is: "cpu", "cuda:0", …"""
        return "cpu" if self._net is None else str(next(self._net.parameters()).device)

    @property
    def tokenizer(self) -> Tokenizer:
        """`encode(text)` gives ids, `decode(ids)` the text, `pieces(ids)` the text of each id."""
        if self._tokenizer is None:
            raise TokenizerError(f"{self.path} has no tokenizer (tokenizer.json), so only ids can be used.")
        return self._tokenizer

    # ── ids in, numbers out ─────────────────────────────────────────────────────────────────────────────────────────

    def __call__(
        self, ids: "Ids", target_ids: "Ids | None" = None, *, mask: "Ids | None" = None, types: "Ids | None" = None
    ) -> Any:
        """Decoder: logits (B, N, n_vocab). Encoder: states (B, N, d), or its head's logits. Encoder-decoder: logits for
        the target (B, M, n_vocab). `mask` (B, N) is 1 where an id is a token and 0 where it is padding.

        Lists and numpy arrays give a numpy array, from the reference; PyTorch tensors give a tensor, from `net`."""
        from regard.api.inference import run

        return run(self, ids, target_ids, mask, types)

    # ── text out ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> Settings:
        """The default settings for generation: those of generation_config.json, else greedy."""
        return generation.default_settings(self)

    def generate(self, prompt: str | Sequence[str] | Sequence[int], **settings: Any) -> Any:
        """The continuation of a prompt (for an encoder-decoder: the target for that source).

        One prompt and n=1: a string. n > 1: a list of strings. A list of prompts: a list with the result for each.
        Settings are those of `Settings`: temperature=0 is greedy; max_new_tokens is 256 by default.
        `control=True` parses control tokens in the prompt's text.
        """
        answers = [[a.text for a in each] for each in self.answers(prompt, **settings)]
        shaped = [each[0] if len(each) == 1 else each for each in answers]
        return shaped[0] if generation.is_single(prompt) else shaped

    def answers(self, prompt: str | Sequence[str] | Sequence[int], **settings: Any) -> list[list[Answer]]:
        """Like `generate`, with ids, log-probabilities and the reason why each answer ended: a list of n per prompt."""
        return generation.answers(self, prompt, settings)

    def stream(self, prompt: str | Sequence[int], **settings: Any) -> Iterator[str]:
        """The same text as `generate`, piece by piece, never half a character."""
        for token in self.stream_tokens(prompt, **settings):
            if token.text:
                yield token.text

    def stream_tokens(self, prompt: str | Sequence[int], *, alternatives: int = 0, **settings: Any) -> Iterator[Token]:
        """Tokens as they are chosen, each with its log-probability and the `alternatives` likeliest tokens."""
        return generation.tokens(self, prompt, alternatives, settings)

    def chat(self, messages: str | Sequence[Mapping[str, str]], **settings: Any) -> str:
        """The assistant's next message. A string is one message from the user."""
        text: str = self.generate(self.chat_ids(messages), **settings)
        return text

    def chat_ids(self, messages: str | Sequence[Mapping[str, str]], *, context: int | None = None) -> list[int]:
        """The ids of a conversation, formatted by the model's chat template, up to where the answer begins; refused if
        longer than the context."""
        self._need("decoder", "chat")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        limit = min(context or self.spec.context, self.spec.context)
        return encode_chat(self.tokenizer, [dict(m) for m in messages], most=limit)

    def translate(
        self, texts: str | Sequence[str], num_beams: int = 4, *, progress: "Progress | None" = None, **settings: Any
    ) -> list[str]:
        """The translation of each text by an encoder-decoder."""
        self._need("encoder-decoder", "translate")
        sources = [texts] if isinstance(texts, str) else list(texts)
        return generation.translations(self, sources, progress, {**settings, "num_beams": num_beams})

    def rows(self, prompt: Sequence[int], *, context: int | None = None, **settings: Any) -> list[RowState]:
        """The `n` rows of a request, checked and ready for a scheduler whose slots hold `context` tokens.

        Without max_new_tokens an answer may fill the context.
        """
        self._need("decoder", "continue a text")
        return generation.rows(self, prompt, context, settings)

    def slot_bytes(self, capacity: int) -> int:
        """Bytes of the KV cache of a sequence of `capacity` tokens."""
        return generation.slot_bytes(self, capacity)

    def slots(self, count: int, capacity: int) -> Slots:
        """Slots for a scheduler, each for `capacity` tokens, on the fastest engine that supports this network."""
        self._need("decoder", "continue a text")
        return generation.make_slots(self, count, capacity)

    @cached_property
    def ids_without_token(self) -> tuple[int, ...]:
        """Ids of embedding rows that are only padding: no token has them, so they are never generated."""
        return () if self._tokenizer is None else self._tokenizer.without_token(self.spec.n_vocab)

    def first_token(self) -> int:
        """The token that represents an empty text: the one that begins texts, or ends them."""
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
    ) -> NDArray[np.float32]:
        """Embeddings (n, d): one vector per text, pooled as the model's files say, else the mean of its states, normalised.

        A text may be given as its ids, control tokens included. A text longer than the context is refused (`TooLong`), or
        truncated with `truncate`, here and below; the log says how many were. If the model's files set a length to which
        texts are truncated (`max_seq_length`), they are, as by sentence-transformers, and the log says so too.
        """
        from regard.api.inference import embed

        return embed(self, [texts] if isinstance(texts, str) else list(texts), truncate, progress)

    def classify(
        self, texts: str | Sequence[str], *, truncate: bool = False, progress: "Progress | None" = None
    ) -> list[dict[str, float]]:
        """For each text, label → probability, likeliest first."""
        from regard.api.inference import classify

        self._need_head("classify", "classify")
        return classify(self, [texts] if isinstance(texts, str) else list(texts), truncate, progress)

    def tag(
        self, texts: str | Sequence[str], *, truncate: bool = False, progress: "Progress | None" = None
    ) -> "list[list[Tagged]]":
        """For each text its words with their tags; the prediction at a word's first token counts."""
        from regard.api.inference import tag

        self._need_head("tag", "tag")
        return tag(self, [texts] if isinstance(texts, str) else list(texts), truncate, progress)

    def fill(self, text: str, top_k: int = 5) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """The likeliest tokens for the mask in the text; for several masks, a list for each."""
        from regard.api.inference import fill

        self._need_head("mlm", "fill masks")
        return fill(self, text, top_k)

    def score(self, text: str, target: str | None = None) -> "Scores":
        """The log-probability of each token given those before it; with a target, of the target's tokens.

        For an encoder-decoder the text is the source. A decoder gets both as one text, encoded as one, so that no special
        token is between them: the target's tokens begin where this encoding differs from that of the text alone (a token
        with characters of both is the target's). If the text is empty, they follow the token that begins texts.
        """
        from regard.api.inference import score

        if self.spec.head.kind != "lm":
            raise TaskError(f"{self.name} has no language-modelling head, so it cannot score text.")
        return score(self, text, target)

    def _need(self, kind: str, action: str) -> None:
        if self.spec.kind != kind or self.spec.head.kind != "lm":
            needed = "an encoder-decoder (BART, Marian, …)" if kind != "decoder" else "a decoder (GPT-2, Llama, …)"
            raise TaskError(
                f"{self.name} cannot {action}: {self._what_it_is()}; this needs {needed} that generates text."
            )

    def _need_head(self, head: str, action: str) -> None:
        if self.spec.head.kind != head:
            trained = {"classify": "SequenceClassification", "tag": "TokenClassification", "mlm": "MaskedLM"}[head]
            raise TaskError(f"{self.name} cannot {action}: {self._what_it_is()}; this needs a …For{trained} model.")

    def _what_it_is(self) -> str:
        heads = {"none": "no head", "lm": "a language-modelling head", "mlm": "a masked-language-modelling head"}
        kind, head = self.spec.kind, self.spec.head.kind
        return f"it is {'a' if kind == 'decoder' else 'an'} {kind} with {heads.get(head, f'a head to {head}')}"

    # ── tracing and saving ──────────────────────────────────────────────────────────────────────────────────────────

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
        """Every intermediate tensor of a forward pass, by name, and the derivation of each number.

        With `max_new_tokens` the trace continues over text that the model generates (`trace.steps` says how each token was
        chosen). An encoder-decoder generates its own target if none is given. `sites` are patterns of the nodes to record.
        `edits` are applied as by `trace.edit`, on the same text.
        """
        from regard.api.trace import trace

        return trace(self, text, target, max_new_tokens, sites, memory_limit, edits, sampling)

    def evaluate(
        self,
        data: str | Sequence[str],
        *,
        task: str | None = None,
        most: int | None = None,
        progress: Any = lambda done, total: None,
        **settings: Any,
    ) -> dict[str, float]:
        """The metrics of the model's task (loss, perplexity, accuracy, BLEU, chrF …) on the examples in files."""
        from regard.api.training import evaluate

        return evaluate(self, [data] if isinstance(data, str) else list(data), task, most, progress, settings)

    def rounding_cost(self, quantize: str, text: str | None = None, name: str = "a text") -> "QuantizationCost":
        """What quantizing the matrices to `quantize` would change, measured on a text (by default this package's own):
        perplexity and the largest difference of logits; for an encoder without a head the cosine of embeddings."""
        from regard.api.saving import rounding_cost

        return rounding_cost(self, quantize, text, name)

    def save(
        self,
        directory: str | Path,
        format: str = "hf",
        *,
        quantize: str | None = None,
        dtype: str | None = None,
        cost: "QuantizationCost | None" = None,
    ) -> Path:
        """Save the model as "hf" (a directory for `transformers`), "gguf" (one file, for llama.cpp) or, for architectures
        that GGUF does not have, "blocks" (a directory that only this package opens).

        quantize: for gguf and blocks f16, q8, q4, …; float32 by default. dtype: for hf float32, bfloat16 or float16; by
        default as the weights are in memory. cost: the measured cost of quantization, to be stored in the file.
        """
        from regard.api.saving import save

        return save(self, Path(directory), format, quantize, dtype, cost)
