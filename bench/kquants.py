"""`python -m bench.kquants`: how near the native engine and llama.cpp come to the exact result on llama.cpp's own files.

Its quantiser turns SmolLM2 into a file of each kind; exact is PyTorch in float32 on the file's numbers.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

import regard
from bench.peer import HERE, interpreter
from regard.engine.fast import FastDecoder
from regard.engine.passage import PASSAGE
from regard.engine.rank import Floats

KINDS = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_0", "Q5_1", "Q5_K_M", "Q6_K")


def main() -> None:
    if (python := interpreter()) is None:
        return
    with tempfile.TemporaryDirectory() as scratch:
        model, directory = regard.load("smollm2", dtype="float32"), Path(scratch)
        ids = model.tokenizer.encode(PASSAGE)[:256]
        (directory / "ids.json").write_text(json.dumps(ids))
        source = model.save(directory / "float32.gguf", format="gguf")
        script = str(HERE / "llama_kquants_peer.py")
        told = [str(python), "-P", script, str(source), scratch, f"{scratch}/ids.json", *KINDS]
        subprocess.run(told, check=True, stderr=subprocess.DEVNULL)
        print(f"| {len(ids)} tokens | regard: mean, largest error of a logit | same best token | llama.cpp | same |")
        print("|---|---|---|---|---|")
        for kind in KINDS:
            path = directory / f"{kind}.gguf"
            with torch.inference_mode():
                exact = regard.load(path, dtype="float32", engine="torch")(ids)[0].numpy()
            cells = (errors(logits, exact) for logits in (native(path, ids), np.load(directory / f"{kind}.npy")))
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def native(path: Path, ids: list[int]) -> Floats:
    engine = regard.load(path, engine="native").engine
    assert engine is not None
    decoder = FastDecoder(engine, [ids[:1]], len(ids))
    return np.concatenate([decoder.start(), decoder.read([ids[1:]])[0]])


def errors(logits: Floats, exact: Floats) -> str:
    off, same = np.abs(logits - exact), (logits.argmax(-1) == exact.argmax(-1)).mean()
    return f"{off.mean():.3f}, {off.max():.2f} | {same:.1%}"


if __name__ == "__main__":
    main()
