"""onnxruntime as a peer: reads commands line by line, answers with a rate; runs under the peers' interpreter, not ours.

`onnx_peer.py DIRECTORY THREADS`, the directory of a BERT of `transformers`. `embed FILE`: a sentence a line, in batches of
32 of about equal length; answered with sentences a second, tokenising, pooling and normalising included.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers

BATCH = 32


class States(torch.nn.Module):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self.bert = transformers.AutoModel.from_pretrained(directory, attn_implementation="eager").eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> Any:
        return self.bert(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state


def export(directory: str, to: Path) -> None:
    model = States(directory).eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones(2, 8, dtype=torch.long) for _ in names)
    axes = {name: {0: "batch", 1: "length"} for name in [*names, "last_hidden_state"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            example,
            str(to),
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_axes=axes,
            dynamo=False,
        )


def embed(session: Any, tokenizer: Any, texts: list[str]) -> float:
    begin = time.perf_counter()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for first in range(0, len(texts), BATCH):
        some = [texts[i] for i in order[first : first + BATCH]]
        batch = dict(tokenizer(some, padding=True, truncation=True, return_tensors="np"))
        states = session.run(["last_hidden_state"], {name: batch[name].astype(np.int64) for name in batch})[0]
        weights = batch["attention_mask"][..., None].astype(np.float32)
        mean = (states * weights).sum(1) / weights.sum(1)
        mean /= np.linalg.norm(mean, axis=-1, keepdims=True)
    return len(texts) / (time.perf_counter() - begin)


def main(directory: str, threads: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        export(directory, Path(scratch) / "model.onnx")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(Path(scratch) / "model.onnx"), settings)
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        for line in sys.stdin:
            texts = Path(line.split(maxsplit=1)[1].strip()).read_text().splitlines()
            print(embed(session, tokenizer, texts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
