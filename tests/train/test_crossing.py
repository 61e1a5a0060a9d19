"""The bundled translator's attention crosses where French turns English around."""

import torch

import regard
from regard.text.tokenizer import Tokenizer
from regard.train.probe import attention_of

ENGLISH, FRENCH = "the European Economic Area", "la zone économique européenne"


def word_of_each(tokenizer: Tokenizer, ids: list[int], text: str) -> list[int]:
    """For every id the number of its word in the text; the end token has one of its own."""
    words, so_far, found = text.split(), "", []
    for i in ids[:-1]:
        so_far += tokenizer.decode([i])
        found.append(min(len(so_far.split()), len(words)) - (not so_far.endswith(" ")))
    return [*found, len(words)]


def test_cross_attention_crosses() -> None:
    """In the last layer's second head (decoder.1, head 1) each French word is written looking at its English word."""
    model = regard.load("toy-translate")
    assert model.translate(ENGLISH) == [FRENCH]
    source, target = model.tokenizer.encode(ENGLISH), model.tokenizer.encode(FRENCH)
    keys = torch.tensor(word_of_each(model.tokenizer, source, ENGLISH))
    queries = torch.tensor(word_of_each(model.tokenizer, target, FRENCH))
    A = attention_of(model.net, [source, target])["decoder.1.cross.weights"][1].float()  # (M, N): pieces
    by_word = torch.stack([A[:, keys == word].sum(1) for word in range(5)], 1)  # (M, 5): how much goes to each word
    W = torch.stack([by_word[queries == word].mean(0) for word in range(5)])  # (5, 5): French words × English words
    crossing = {"zone": "Area", "économique": "Economic", "européenne": "European"}
    for french, english in crossing.items():
        row = W[FRENCH.split().index(french)]
        at = ENGLISH.split().index(english)
        assert int(row.argmax()) == at, (french, row)
        assert float(row[at]) > 0.5, (french, row)
