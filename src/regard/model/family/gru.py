"""The recurrent encoder-decoder of 2015: GRUs, and additive attention from the decoder's state to the encoder's states.

Bahdanau, Cho and Bengio, 2015. The baseline that the Transformer is measured against. No other library has
this model type; its tensors are named as the network's own parameters.
"""

from collections.abc import Collection, Mapping
from typing import Any

from regard.model.config import Config
from regard.model.recurrent import network
from regard.model.registry import Family
from regard.model.spec import HeadSpec, RecurrentSpec, Spec
from regard.model.weight_map import Rule, Table, both


def gru_rules(module: str, suffixes: tuple[str, ...]) -> tuple[Rule, ...]:
    """The GRU's weights under PyTorch's names, in the file as in the network."""
    names = [
        f"{module}.{kind}_{part}{suffix}" for kind in ("weight", "bias") for part in ("ih", "hh") for suffix in suffixes
    ]
    return tuple(Rule(name, name) for name in names)


MODULES = ("decoder.first", "decoder.cross.W_s", "decoder.cross.W_h", "decoder.cross.v", "decoder.out", "unembed")

TABLE = Table(
    rules=(
        Rule("encoder.embed.tokens.weight", "encoder.embed.tokens.weight"),
        Rule("decoder.embed.tokens.weight", "decoder.embed.tokens.weight"),
        *gru_rules("encoder.reader.gru", ("_l0", "_l0_reverse")),
        *gru_rules("decoder.cell", ("",)),
        *(both(name, name) for name in MODULES),
    )
)


def spec(c: Config, names: Collection[str]) -> Spec:
    c.only({"is_encoder_decoder": True, "tie_word_embeddings": True})
    tied = ("encoder.embed.tokens.weight", "decoder.embed.tokens.weight", "unembed.weight")
    return Spec(
        family="gru",
        d=c.size("d_model", default=256),
        encoder=None,
        decoder=None,
        recurrent=RecurrentSpec(
            n_vocab=c.size("vocab_size"),
            hidden=c.size("hidden_size", default=256),
            limit=c.size("max_position_embeddings", default=1024),
            dropout=c.rate("dropout", default=0.1),
        ),
        head=HeadSpec("lm"),
        tied=(tied,),
        pad_id=c.id("pad_token_id", 1),
        bos_id=c.id("bos_token_id", 0),
        eos_ids=c.ids("eos_token_id", (2,)),
        start_id=c.id("decoder_start_token_id", 2),
        initializer_std=c.number("init_std", default=0.02),
    )


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    return TABLE


# Settings of the Transformer that it is compared with, which runs of early versions also recorded.
SIZES = [f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads", "ffn_dim")]
HARMLESS = (*SIZES, "activation_function", "scale_embedding", "attention_dropout", "activation_dropout")

FAMILY = Family("gru", spec, table, harmless=HARMLESS, network=network)
