"""llama.cpp's own quantizer and logits; runs under an interpreter that has llama-cpp-python.

`llama_kquants_peer.py FILE.gguf DIRECTORY IDS.json KIND…` writes DIRECTORY/KIND.gguf, and as KIND.npy the logits that
llama.cpp itself gives after each of the ids.
"""

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp import Llama

KINDS = {"Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_0": 8, "Q5_1": 9, "Q5_K_M": 17, "Q6_K": 18}  # llama.h's numbers


def main(source: str, directory: Path, ids: list[int], kinds: list[str]) -> None:
    for kind in kinds:
        path = directory / f"{kind}.gguf"
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype, settings.nthread = KINDS[kind], 2
        if llama_cpp.llama_model_quantize(source.encode(), str(path).encode(), ctypes.byref(settings)):
            raise RuntimeError(f"{kind} could not be made")
        model = Llama(str(path), n_ctx=512, n_batch=512, n_threads=2, logits_all=True, verbose=False)
        model.eval(ids)
        np.save(directory / f"{kind}.npy", np.array(model.scores[: len(ids)]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()), sys.argv[4:])
