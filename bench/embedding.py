"""Embedding a thousand sentences of mixed lengths with MiniLM, compared with `transformers` in batches of 32 in their
order and with onnxruntime in batches of 32 of about equal length."""

import random
import tempfile
from collections.abc import Iterator

import torch
import transformers

import regard
from bench.peer import Peer, interpreter
from bench.versus import Comparison, alternate, seconds

WORDS = (
    "the a cat dog house river movie story was is very quite boring amazing and but of in over under ran saw".split()
)


def comparisons() -> Iterator[Comparison]:
    texts = sentences(1000)
    ours = regard.load("minilm")
    theirs = transformers.AutoModel.from_pretrained(ours.path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(ours.path)

    @torch.inference_mode()
    def embed_theirs() -> torch.Tensor:
        vectors = []
        for first in range(0, len(texts), 32):
            batch = tokenizer(texts[first : first + 32], padding=True, truncation=True, return_tensors="pt")
            states = theirs(**batch).last_hidden_state
            weights = batch["attention_mask"][..., None].float()
            mean = (states * weights).sum(1) / weights.sum(1)
            vectors.append(torch.nn.functional.normalize(mean, dim=-1))
        return torch.cat(vectors)

    torch.testing.assert_close(torch.from_numpy(ours.embed(texts[:64])), embed_theirs()[:64], rtol=0, atol=1e-5)
    yield alternate(
        "MiniLM, float32, embed 1000 sentences of 3 to 120 words",
        "sentences/s",
        lambda: len(texts) / seconds(lambda: ours.embed(texts)),
        lambda: len(texts) / seconds(embed_theirs),
        rounds=3,
        aim=1.5,
    )
    if (python := interpreter()) is not None:
        with (
            tempfile.NamedTemporaryFile("w", suffix=".txt") as file,
            Peer(python, "onnx_peer.py", ours.path, 2) as peer,
        ):
            print("\n".join(texts), file=file, flush=True)
            yield alternate(
                "MiniLM, float32, the same sentences (peer: onnxruntime)",
                "sentences/s",
                lambda: len(texts) / seconds(lambda: ours.embed(texts)),
                lambda: peer.ask(f"embed {file.name}"),
                rounds=3,
                aim=1.0,
            )


def sentences(n: int) -> list[str]:
    """Lengths as in real text: most are short, some are long."""
    dice = random.Random(0)
    lengths = [min(120, 3 + int(dice.expovariate(1 / 18))) for _ in range(n)]
    return [" ".join(dice.choice(WORDS) for _ in range(length)) for length in lengths]
