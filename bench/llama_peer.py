"""llama.cpp as a peer: reads commands line by line, answers with rates; runs under the peers' interpreter, not ours.

`decode PROMPT NEW` · `prefill LENGTH` · `streams STREAMS PROMPT NEW`, each answered with tokens a second. With a question
after the number of threads and the context length it generates one token and exits.
"""

import sys
import time
from typing import Any

import llama_cpp
from llama_cpp import Llama


def tokens(n: int) -> list[int]:
    return [5 + i % 1000 for i in range(n)]


def decode(model: Llama, prompt: int, new: int) -> float:
    model.reset()
    model.eval(tokens(prompt))
    begin = time.perf_counter()
    for _ in range(new):
        model.eval([5])
    return new / (time.perf_counter() - begin)


def prefill(model: Llama, length: int) -> float:
    model.reset()
    begin = time.perf_counter()
    model.eval(tokens(length))
    return length / (time.perf_counter() - begin)


class Streams:
    """Several sequences in one context, a token of each per call."""

    def __init__(self, model: Llama, n: int, threads: int) -> None:
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_seq_max = 256 * n, 512, n
        settings.n_threads = settings.n_threads_batch = threads
        settings.flash_attn_type = 1
        self.n, self.context = n, llama_cpp.llama_init_from_model(model.model, settings)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def feed(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """Rows are (token, position, sequence, whether to compute logits)."""
        batch: Any = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")

    def rate(self, prompt: int, new: int) -> float:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        for s in range(self.n):
            self.feed([(token, i, s, i + 1 == prompt) for i, token in enumerate(tokens(prompt))])
        begin = time.perf_counter()
        for i in range(new):
            self.feed([(5, prompt + i, s, True) for s in range(self.n)])
            llama_cpp.llama_synchronize(self.context)
        return self.n * new / (time.perf_counter() - begin)


def main(path: str, threads: int, room: int, question: str | None = None) -> None:
    model = Llama(
        path, n_ctx=room, n_batch=512, n_threads=threads, n_threads_batch=threads, flash_attn=True, verbose=False
    )
    if question is not None:
        messages: Any = [{"role": "user", "content": question}]
        answer: Any = model.create_chat_completion(messages, max_tokens=1, temperature=0)
        print(answer["choices"][0]["message"]["content"], flush=True)
        return
    streams: Streams | None = None
    for line in sys.stdin:
        what, *numbers = line.split()
        sizes = [int(n) for n in numbers]
        if what == "streams":
            streams = streams or Streams(model, sizes[0], threads)
            rate = streams.rate(*sizes[1:])
        else:
            measure: Any = {"decode": decode, "prefill": prefill}[what]
            rate = measure(model, *sizes)
        print(rate, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
