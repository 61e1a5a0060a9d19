"""BART and its cousins: encoder-decoder, one vocabulary, for generating and (BART) classifying.

Lewis et al., 2019. What differs between them is a row of `KINDS`: Marian has sinusoidal positions and scaled embeddings,
mBART and M2M100 put the norm first and add one at the end of each side.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from regard.model.config import ACTIVATION_NAMES, Config
from regard.model.family.fairseq import layers
from regard.model.registry import Family
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec, head_size
from regard.model.transformer import sinusoids
from regard.model.weight_map import ROW, Rule, Table, both


@dataclass(frozen=True)
class Kind:
    wiring: Literal["pre", "post"]
    positions: Literal["learned", "sinusoidal"]
    offset: int | None  # of the first token; None: pad_token_id + 1
    stretch: bool = False
    embed_norm: bool = True
    scaled: bool = False  # the default of scale_embedding
    logits_bias: bool = True
    activation: str = "gelu"
    pad_id: int = 1
    start_id: int = 2
    eos_id: int = 2
    n_vocab: int = 50265
    attention_dropout: float = 0.0


KINDS = {
    "bart": Kind("post", "learned", offset=2),
    "mbart": Kind("pre", "learned", offset=2),
    "marian": Kind(
        "post", "sinusoidal", offset=0, embed_norm=False, pad_id=58100, start_id=58100, eos_id=0, n_vocab=58101
    ),
    "m2m_100": Kind(
        "pre",
        "sinusoidal",
        offset=None,
        stretch=True,
        embed_norm=False,
        scaled=True,
        logits_bias=False,
        activation="relu",
        n_vocab=128112,
        attention_dropout=0.1,
    ),
}


def spec(c: Config, names: Collection[str]) -> Spec:
    model_type = c.get("model_type", default="bart")
    kind = KINDS[model_type]
    refuse_other_wirings(c, kind)
    d = c.size("d_model", "hidden_size", default=1024)
    head = head_of(c, kind)
    source = target = c.size("vocab_size", default=kind.n_vocab)
    shared = True
    if model_type == "marian":  # the only one whose two sides may have vocabularies of their own
        shared = c.flag("share_encoder_decoder_embeddings", default=True)
        target = c.size("decoder_vocab_size", default=source)
        if shared and target != source:
            raise c.refuse("decoder_vocab_size", f"{source}, the vocab_size, when the embeddings are shared")
    else:
        c.only({"share_encoder_decoder_embeddings": True})
    tied = list[str]()
    if c.flag("tie_word_embeddings", default=True):
        tied += ["encoder.embed.tokens.weight"] * shared + ["decoder.embed.tokens.weight"]
        tied += ["unembed.weight"] * (head.kind == "lm")
    return Spec(
        family="bart",
        d=d,
        encoder=stack(c, kind, d, "encoder", source),
        decoder=stack(c, kind, d, "decoder", target),
        head=head,
        tied=(tuple(tied),) if len(tied) > 1 else (),
        pad_id=c.id("pad_token_id", kind.pad_id),
        bos_id=c.id("bos_token_id", 0),
        eos_ids=c.ids("eos_token_id", (kind.eos_id,)),
        start_id=c.id("decoder_start_token_id", kind.start_id),
        initializer_std=c.number("init_std", default=0.02),
    )


def refuse_other_wirings(c: Config, kind: Kind) -> None:
    """Refuse wirings other than the model type's, which early files state explicitly."""
    if "is_causal" in c.values:  # in transformers either value changes one of the two sides
        raise c.refuse("is_causal", "left out: the encoder is bidirectional, the decoder causal")
    c.only({"is_encoder_decoder": True, "is_decoder": False, "add_bias_logits": False})
    c.only({"normalize_before": kind.wiring == "pre", "add_final_layer_norm": kind.wiring == "pre"})
    c.only({"normalize_embedding": kind.embed_norm, "static_position_embeddings": kind.positions == "sinusoidal"})


def first_position(c: Config, kind: Kind) -> int:
    if kind.offset is not None:
        return kind.offset
    pad = c.id("pad_token_id", kind.pad_id)
    if pad is None:
        raise c.refuse("pad_token_id", "a token id: positions are counted from it")
    return pad + 1


def stack(c: Config, kind: Kind, d: int, side: str, n_vocab: int) -> StackSpec:
    general = ("num_attention_heads", "num_hidden_layers") if side == "encoder" else ()
    heads = c.size(f"{side}_attention_heads", *general[:1], default=16)
    scaled = c.flag("scale_embedding", default=kind.scaled)
    dropout = c.rate("attention_dropout", default=kind.attention_dropout)
    return StackSpec(
        n_layers=c.layers(f"{side}_layers", *general[1:], default=12),
        n_vocab=n_vocab,
        wiring=kind.wiring,
        norm="layer",
        eps=1e-5,
        attention=AttentionSpec(heads, heads, head_size(d, heads), dropout=dropout),
        mlp=MLPSpec(
            c.size(f"{side}_ffn_dim", default=4096),
            c.choice("activation_function", among=ACTIVATION_NAMES, default=kind.activation),
            dropout=c.rate("activation_dropout"),
        ),
        positions=PositionSpec(
            kind.positions,
            c.size("max_position_embeddings", default=1024),
            offset=first_position(c, kind),
            halves=True,
            stretch=kind.stretch,
        ),
        embed_scale=d**0.5 if scaled else 1.0,
        embed_norm=kind.embed_norm,
        final_norm=kind.wiring == "pre",
        dropout=c.rate("dropout", default=0.1),
        embed_dropout=c.rate("dropout", default=0.1),
    )


def head_of(c: Config, kind: Kind) -> HeadSpec:
    endings = ("ForConditionalGeneration", "MTModel", "ForSequenceClassification", "Model")
    architecture = c.architecture("BartForConditionalGeneration", endings)
    if architecture.endswith(("ForConditionalGeneration", "MTModel")):
        return HeadSpec("lm", bias=kind.logits_bias)
    if architecture.endswith("ForSequenceClassification"):
        return HeadSpec("classify", dense=True, labels=c.exclusive_labels(3), dropout=c.rate("classifier_dropout"))
    return HeadSpec("none")


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    shared = any("encoder.embed.tokens.weight" in group for group in spec.tied)
    rules = (
        *((Rule("model.shared.weight", "encoder.embed.tokens.weight"),) if shared else ()),
        Rule("model.encoder.embed_tokens.weight", "encoder.embed.tokens.weight", extra=shared),
        Rule("model.decoder.embed_tokens.weight", "decoder.embed.tokens.weight"),
        Rule("model.encoder.embed_positions.weight", "encoder.embed.positions.weight", extra=True),
        Rule("model.decoder.embed_positions.weight", "decoder.embed.positions.weight", extra=True),
        both("model.encoder.layernorm_embedding", "encoder.embed.norm"),
        both("model.decoder.layernorm_embedding", "decoder.embed.norm"),
        *layers("encoder", "model."),
        *layers("decoder", "model."),
        Rule("lm_head.weight", "unembed.weight", extra=True),
        Rule("final_logits_bias", "unembed.bias", ROW, extra=True),
        both("classification_head.dense", "head.dense"),
        both("classification_head.out_proj", "head.out"),
    )
    return Table(
        rules,
        prefix="model.",
        ignore=() if shared else (r"(model\.)?shared\.weight",),  # transformers writes it although nothing reads it
        bare=spec.head.kind == "none",
        zero=("unembed.bias",),
        # Marian's files may hold the sinusoids, which transformers then takes from there
        constants={
            f"model.{side}.embed_positions.weight": partial(sinusoids, spec.d, stack.positions)
            for side, stack in spec.stacks.items()
            if config["model_type"] == "marian"
        },
    )


# LayerDrop and the classifier's dropout are for training; the student's sizes are settings of distillation.
HARMLESS = (
    *("encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout", "extra_pos_embeddings"),
    *("replacing_rate", "save_step", "student_encoder_layers", "student_decoder_layers"),
)
FAMILY = Family("bart", spec, table, harmless=HARMLESS)
