"""`python -m bench.kquants`: errors of the native engine's and llama.cpp's logits on files that llama.cpp quantized.

Its quantizer converts SmolLM2 to each kind; the exact logits are PyTorch's in float32 on the file's dequantized weights.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import regard
from bench.peer import HERE, interpreter
from regard.engine.native_engine import NativeDecoder
from regard.engine.quality.calibration_text import PASSAGE
from regard.engine.top_k import Floats

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
            exact = regard.load(path, dtype="float32", engine="torch")(ids)[0]
            cells = (errors(logits, exact) for logits in (native(path, ids), np.load(directory / f"{kind}.npy")))
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def native(path: Path, ids: list[int]) -> Floats:
    engine = regard.load(path, engine="native").engine
    assert engine is not None
    decoder = NativeDecoder(engine, [ids[:1]], len(ids))
    return np.concatenate([decoder.prefill(), decoder.extend([ids[1:]])[0]])


def errors(logits: Floats, exact: Floats) -> str:
    off, same = np.abs(logits - exact), (logits.argmax(-1) == exact.argmax(-1)).mean()
    return f"{off.mean():.3f}, {off.max():.2f} | {same:.1%}"


if __name__ == "__main__":
    main()
