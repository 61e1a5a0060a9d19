"""A live server on a free port, and a tiny model that chats, for the tests of several folders."""

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import transformers as hf
from fastapi import FastAPI

import tiny
import tiny_tokenizers
from regard.serve.connections import Limits
from regard.serve.model_registry import ModelRegistry
from regard.serve.openai import make_server
from regard.serve.served_models import ServedModels
from regard.serve.uvicorn_server import Server
from regard.text.tokenizer import Tokenizer

CHAT = "tiny-chat"
T = TypeVar("T")


def make_chat_model(folder: Path) -> Path:
    """A random Llama with a byte-level tokenizer and a chat template."""
    raw = tiny_tokenizers.byte_level()
    size = raw.get_vocab_size()
    config = {**tiny.LLAMA, "vocab_size": size, "max_position_embeddings": 256, "num_key_value_heads": 2}
    end = raw.token_to_id("<|im_end|>")
    model = tiny.randomised(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**config, eos_token_id=end, bos_token_id=0)))
    model.generation_config = hf.GenerationConfig(eos_token_id=end, bos_token_id=0)
    place = folder / CHAT
    model.save_pretrained(place)
    specials = {"bos": "<|endoftext|>", "eos": "<|im_end|>"}
    Tokenizer(raw, specials=specials, chat_templates={"default": tiny_tokenizers.CHATML}).save(place)
    return place


def server_of(models: list[Any], page: Path, **settings: Any) -> FastAPI:
    """`slots`, `queue` and `context` are settings of `ServedModels`; `key` and `host` of `make_server`."""
    outside = {name: settings.pop(name) for name in ("key", "host") if name in settings}
    return make_server(ServedModels(ModelRegistry(models), **settings), page=page, **outside)


@contextmanager
def running(app: Any, *, unread: int | None = None, **limits: Any) -> Iterator[str]:
    """The address of the app's server while it runs. `unread`: about how many bytes the system buffers for a client."""
    server, door = Server(app, Limits(**limits), log_config=None), socket.create_server(("127.0.0.1", 0))
    if unread is not None:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unread)
    thread = threading.Thread(target=server.run, args=([door],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        door.close()


def until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own, since Playwright's loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
