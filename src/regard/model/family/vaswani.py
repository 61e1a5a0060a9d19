"""The Transformer of 2017: encoder-decoder, sinusoidal positions, ReLU; post-norm as published, or pre-norm as later.

Vaswani et al., 2017. Source and target have their own vocabularies. Tensors have fairseq's names, so that models trained
there open here; the configuration's keys are those of BART plus `src_vocab_size`, `tgt_vocab_size`, `normalize_before` and
`position_style` ("paper": interleaved, from 0; "fairseq": halves, stretched, from pad_token_id + 1).
"""

from collections.abc import Collection, Mapping
from typing import Any

from regard.model.config import ACTIVATION_NAMES, Config
from regard.model.family.fairseq import layers
from regard.model.registry import Family
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec, head_size
from regard.model.weight_map import Rule, Table

FAIRSEQ = Table(
    rules=(
        Rule("encoder.embed_tokens.weight", "encoder.embed.tokens.weight"),
        Rule("decoder.embed_tokens.weight", "decoder.embed.tokens.weight"),
        *layers("encoder"),
        *layers("decoder"),
        Rule("decoder.output_projection.weight", "unembed.weight"),
    ),
    ignore=(r"(encoder|decoder)\.(version|embed_positions\._float_tensor)",),
)


def spec(c: Config, names: Collection[str]) -> Spec:
    d = c.size("d_model", default=512)
    c.only({"is_encoder_decoder": True, "is_decoder": False})
    both = None if c.get("vocab_size") is None else c.size("vocab_size")
    source, target = c.size("src_vocab_size", default=both), c.size("tgt_vocab_size", default=both)
    shared = c.flag("share_all_embeddings", default=False)
    if shared and source != target:
        raise c.refuse("share_all_embeddings", "false when the two vocabularies differ in size")
    tied = ("decoder.embed.tokens.weight", "unembed.weight") if c.flag("tie_word_embeddings", default=True) else ()
    if shared:
        tied = ("encoder.embed.tokens.weight", *(tied or ("decoder.embed.tokens.weight",)))
    return Spec(
        family="vaswani",
        d=d,
        encoder=stack(c, d, "encoder", source),
        decoder=stack(c, d, "decoder", target),
        head=HeadSpec("lm"),
        tied=(tied,) if tied else (),
        pad_id=c.id("pad_token_id", 1),
        bos_id=c.id("bos_token_id", 0),
        eos_ids=c.ids("eos_token_id", (2,)),
        start_id=c.id("decoder_start_token_id", 2),
        initializer_std=c.number("init_std", default=0.02),
    )


def stack(c: Config, d: int, side: str, n_vocab: int) -> StackSpec:
    heads = c.size(f"{side}_attention_heads", default=8)
    fairseq = c.choice("position_style", among={"paper": "", "fairseq": "fairseq"}, default="paper") == "fairseq"
    pre = c.flag("normalize_before", default=False)
    return StackSpec(
        n_layers=c.layers(f"{side}_layers", default=6),
        n_vocab=n_vocab,
        wiring="pre" if pre else "post",
        norm="layer",
        eps=c.number("layer_norm_eps", default=1e-5),
        attention=AttentionSpec(heads, heads, head_size(d, heads), dropout=c.rate("attention_dropout")),
        mlp=MLPSpec(
            c.size(f"{side}_ffn_dim", default=2048),
            c.choice("activation_function", among=ACTIVATION_NAMES, default="relu"),
            dropout=c.rate("activation_dropout"),
        ),
        positions=PositionSpec(
            "sinusoidal",
            c.size("max_position_embeddings", default=1024),
            offset=(c.id("pad_token_id", 1) or 0) + 1 if fairseq else 0,
            halves=fairseq,
            stretch=fairseq,
        ),
        embed_scale=d**0.5 if c.flag("scale_embedding", default=True) else 1.0,
        final_norm=pre,
        dropout=c.rate("dropout", default=0.1),
        embed_dropout=c.rate("dropout", default=0.1),
    )


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    return FAIRSEQ


FAMILY = Family("vaswani", spec, table)
