"""The registry of architectures: `model_type` → family. Adding an architecture is a file in `family/` and a line here."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, quoted
from regard.model import transformer
from regard.model.config import Config
from regard.model.harmless_keys import BOOKKEEPING
from regard.model.spec import Spec
from regard.model.weight_map import Table

FAMILIES = {  # model_type → module of `regard.model.family`
    "gpt2": "gpt2",
    "bert": "bert",
    "roberta": "bert",
    "xlm-roberta": "bert",
    "bart": "bart",
    "mbart": "bart",
    "marian": "bart",
    "m2m_100": "bart",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "vaswani": "vaswani",
    "gru": "gru",
}


class OpenGGUF(Protocol):
    """What a family uses of an open GGUF file."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def names(self) -> Collection[str]: ...
    def shape(self, name: str) -> Sequence[int]: ...
    def array(self, name: str) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class GGUFForm:
    """How a family is stored in a GGUF file."""

    architectures: tuple[str, ...]  # values of general.architecture that this family reads
    config: Callable[[Config, OpenGGUF], dict[str, Any]]  # metadata and tensors → what its config.json would say
    metadata: Callable[[Mapping[str, Any], Spec], dict[str, Any]]  # config.json → metadata, architecture included
    table: Callable[[Mapping[str, Any], Spec], Table]
    # tensors in the file that are not parameters
    constants: Callable[[Spec], dict[str, NDArray[np.float32]]] = lambda spec: {}
    harmless: Collection[str] = ()  # metadata below "<architecture>." that is not read and changes nothing


@dataclass(frozen=True)
class Family:
    """An architecture: how to read its configuration, and the names of its tensors in files."""

    name: str
    spec: Callable[[Config, Collection[str]], Spec]  # the second argument: tensor names in the file, if known
    table: Callable[[Mapping[str, Any], Spec], Table]
    gguf: GGUFForm | None = None
    harmless: Collection[str] = ()  # keys of config.json, besides BOOKKEEPING, that `spec` need not read
    network: Callable[[Spec], Any] = transformer.network  # spec → its parts


def family_of(model_type: object, where: str = "config.json") -> Family:
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ConfigError(f"{where}: model_type is {quoted(model_type)}, but this package knows {known}.")
    family: Family = import_module(f"regard.model.family.{FAMILIES[model_type]}").FAMILY
    return family


def family_of_gguf(architecture: object, where: str) -> Family:
    known: list[str] = []
    for module in dict.fromkeys(FAMILIES.values()):
        family: Family = import_module(f"regard.model.family.{module}").FAMILY
        if family.gguf is not None:
            if architecture in family.gguf.architectures:
                return family
            known += family.gguf.architectures
    raise ConfigError(
        f"{where}: general.architecture is {quoted(architecture)}, but this package reads {', '.join(known)}."
    )


def network(spec: Spec) -> "transformer.Single | transformer.EncoderDecoder":
    """The network of a spec as its family defines it, its weights declared and not filled."""
    known = FAMILIES.get(spec.family)
    make = import_module(f"regard.model.family.{known}").FAMILY.network if known else transformer.network
    net: transformer.Single | transformer.EncoderDecoder = make(spec)
    return net


# Settings of any family that would change the network and are not implemented, with the value that leaves them off.
UNIMPLEMENTED = {"pruned_heads": {}, "per_layer_config": {}, "tie_encoder_decoder": False, "add_cross_attention": False}


def spec_of(config: Mapping[str, Any], where: str = "config.json", names: Collection[str] = ()) -> Spec:
    """A config.json (as a dictionary) → a checked Spec; an unknown key is refused."""
    family, c = family_of(config.get("model_type"), where), Config(config, where)
    if c.get("quantization_config"):
        raise ConfigError(
            f"{where} has a quantization_config, and such checkpoints are not read; "
            "use the model's files in 16 or 32 bits, or a GGUF file."
        )
    c.only(UNIMPLEMENTED)
    spec = family.spec(c, names)
    c.refuse_unknown(BOOKKEEPING.union(family.harmless))
    return spec.check()


def config_of_gguf(file: OpenGGUF, where: str) -> tuple[Family, dict[str, Any]]:
    """The family of a GGUF file, and what its config.json would say; unknown metadata is refused."""
    architecture = file.metadata.get("general.architecture")
    family = family_of_gguf(architecture, where)
    assert family.gguf is not None
    c = Config(file.metadata, where)
    try:
        config = family.gguf.config(c, file)
    except KeyError as missing:
        needed = f"the metadata lacks {missing.args[0]!r}, which this architecture needs"
        raise ConfigError(f"{where}: {needed}.") from None
    c.refuse_unknown([f"{architecture}.{key}" for key in family.gguf.harmless], within=f"{architecture}.")
    return family, {key: value for key, value in config.items() if value is not None}
