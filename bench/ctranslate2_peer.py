"""CTranslate2 as a peer: reads commands line by line, answers with rates; runs under the peers' interpreter, not ours.

`ctranslate2_peer.py DIRECTORY COMPUTE_TYPE THREADS`, the directory of a GPT-2 or Marian model of `transformers`:
`decode PROMPT NEW` · `prefill LENGTH` · `translate SENTENCES LENGTH BEAMS NEW`, each answered with tokens a second.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ctranslate2
import transformers
from ctranslate2.converters.transformers import GPT2Loader, MarianMTLoader


def convert(directory: str, kind: str, to: Path) -> str:
    """The model in CTranslate2's own files; the vocabulary is numbers, since no text is read."""
    config = transformers.AutoConfig.from_pretrained(directory)
    marian = config.model_type == "marian"
    cls: Any = transformers.MarianMTModel if marian else transformers.GPT2LMHeadModel
    spec = (MarianMTLoader() if marian else GPT2Loader()).get_model_spec(cls.from_pretrained(directory))
    names = [f"t{i}" for i in range(config.vocab_size - marian)]  # Marian's last row is padding, which it drops
    if marian:
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary(names)
    else:
        spec.register_vocabulary(names)
    for setting in ("unk_token", "bos_token", "eos_token", *(["decoder_start_token"] if marian else [])):
        setattr(spec.config, setting, "t0")
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    spec.save(str(to))
    return str(config.model_type)


def tokens(n: int, first: int = 5) -> list[str]:
    return [f"t{first + i % 1000}" for i in range(n)]


def seconds_to_write(model: Any, prompt: int, new: int) -> float:
    begin = time.perf_counter()
    model.generate_batch(
        [tokens(prompt)], max_length=new, min_length=new, sampling_topk=1, end_token=[], include_prompt_in_result=False
    )
    return time.perf_counter() - begin


def decode(model: Any, prompt: int, new: int) -> float:
    """Many tokens less one, so that the prompt does not count."""
    one = seconds_to_write(model, prompt, 1)
    return new / (seconds_to_write(model, prompt, new + 1) - one)


def prefill(model: Any, length: int) -> float:
    return length / seconds_to_write(model, length, 1)


def translate(model: Any, sentences: int, length: int, beams: int, new: int) -> float:
    sources = [tokens(length, 5 + 7 * i) for i in range(sentences)]
    begin = time.perf_counter()
    found = model.translate_batch(
        sources, beam_size=beams, max_decoding_length=new, min_decoding_length=new, end_token=[]
    )
    rate = sentences * new / (time.perf_counter() - begin)
    assert all(len(each.hypotheses[0]) == new for each in found)
    return rate


def main(directory: str, kind: str, threads: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        to = Path(scratch)
        family = convert(directory, kind, to)
        cls = ctranslate2.Translator if family == "marian" else ctranslate2.Generator
        model = cls(str(to), device="cpu", compute_type=kind, intra_threads=threads, inter_threads=1)
        for line in sys.stdin:
            what, *numbers = line.split()
            asked: Any = {"decode": decode, "prefill": prefill, "translate": translate}[what]
            print(asked(model, *map(int, numbers)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
