"""Real checkpoints: what `transformers` computes from the same files, and figures that were published with a model."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor

import gguf_reference
import regard
from regard.nn.see import watching
from regard.store.hub import INSTALLABLE, installed
from regard.store.safetensors_write import save_checkpoint
from regard.text.chat_template import encode_chat, render_chat

DATA = Path(__file__).parents[1] / "data"


def need(name: str) -> Path:
    path = installed(INSTALLABLE[name])
    if path is None:
        pytest.skip(f"{name} is not installed (regard pull {name})")
    return path


# ── SmolLM2: a chat model in a quantised GGUF file ───────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def smollm2() -> regard.Model:
    need("smollm2")
    return regard.load("smollm2")


@pytest.fixture(scope="module")
def smollm2_there() -> Any:
    """The same file through `transformers`, with the configuration the model was published with."""
    config = hf.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    return gguf_reference.read_by_transformers(need("smollm2"), config)


@pytest.fixture(scope="module")
def smollm2_tokenizer_there() -> Any:
    path = need("smollm2")
    return hf.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@pytest.mark.parametrize(
    "text", ["The capital of France is", "x", "Ünïcödé 🦊 日本語\n\n\tdef f(x):\n    return x**2", "once " * 100]
)
@torch.no_grad()
def test_smollm2_logits(smollm2: regard.Model, smollm2_there: Any, text: str) -> None:
    ids = torch.tensor([smollm2.tokenizer.encode(text)])
    logits = smollm2_there(ids).logits
    torch.testing.assert_close(smollm2(ids), logits, rtol=0, atol=1e-4)
    by_numpy = torch.from_numpy(smollm2(ids.numpy()))
    if "once " in text:  # positions of the reference are rounded once from float64; text that repeats itself shows it
        assert torch.equal(by_numpy.argmax(-1)[:, -1], logits.argmax(-1)[:, -1])
    else:
        torch.testing.assert_close(by_numpy, logits, rtol=0, atol=1e-4 * float(logits.abs().max()))  # as `verify` does


def test_smollm2_knows_the_capital_of_france(smollm2: regard.Model, smollm2_there: Any) -> None:
    prompt = "The capital of France is"
    (answer,) = smollm2.answers(prompt, max_new_tokens=32, temperature=0)[0]
    assert answer.text.startswith(" Paris.")
    ids = torch.tensor([smollm2.tokenizer.encode(prompt)])
    assert smollm2(ids)[0, -1].max().item() == pytest.approx(17.3713, abs=1e-3)
    theirs = smollm2_there.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)
    assert answer.ids == theirs[0, ids.shape[1] :].tolist()


CONVERSATIONS = [
    [{"role": "user", "content": "What is gravity?"}],
    [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "  naïve café?\n\n"},
        {"role": "assistant", "content": "Ça va 🦊 日本語\t."},
        {"role": "user", "content": ""},
    ],
]


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("messages", CONVERSATIONS, ids=len)
def test_smollm2_chat_template(
    smollm2: regard.Model, smollm2_tokenizer_there: Any, messages: list[dict[str, str]], prompted: bool
) -> None:
    template = smollm2.tokenizer.chat_template
    assert template is not None
    theirs = smollm2_tokenizer_there.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompted)
    assert render_chat(template, messages, add_generation_prompt=prompted) == theirs
    ids = smollm2_tokenizer_there.apply_chat_template(messages, add_generation_prompt=prompted, return_dict=False)
    assert encode_chat(smollm2.tokenizer, messages, add_generation_prompt=prompted) == ids
    if prompted:
        assert smollm2.chat_ids(messages) == ids


# ── MiniLM: a sentence encoder ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def minilm() -> regard.Model:
    need("minilm")
    return regard.load("minilm")


def test_minilm_hello_world(minilm: regard.Model) -> None:
    (vector,) = minilm.embed("hello world")
    assert vector[:5].tolist() == pytest.approx([-0.034477, 0.031023, 0.006735, 0.026109, -0.039362], abs=1e-5)
    assert vector @ vector == pytest.approx(1, abs=1e-6)


@torch.no_grad()
def test_minilm_is_the_mean_of_their_states(minilm: regard.Model) -> None:
    hf.logging.disable_progress_bar()
    texts = ["hello world", "a", "", "The quick brown fox jumps over the lazy dog. " * 40, "naïve café 🦊 日本語"]
    tokenizer, model = hf.AutoTokenizer.from_pretrained(minilm.path), hf.AutoModel.from_pretrained(minilm.path).eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    assert batch["input_ids"].shape == (5, 256)
    real = batch["attention_mask"][..., None]
    mean = (model(**batch).last_hidden_state * real).sum(1) / real.sum(1)
    expected = torch.nn.functional.normalize(mean, dim=-1)
    np.testing.assert_allclose(minilm.embed(texts), expected.numpy(), rtol=0, atol=1e-5)


# ── gpt-nano-sort: a minGPT with every number of a run ───────────────────────────────────────────────────────────────


class Nano:
    """The stored weights as a Hugging Face directory, loaded, and the stored run."""

    def __init__(self, directory: Path) -> None:
        stored = np.load(DATA / "gpt_nano_sort.npz")
        self.ids = torch.from_numpy(stored["ids"]).long()  # (3, 11)
        self.partials = {key[8:]: torch.from_numpy(stored[key]) for key in stored if key.startswith("partial.")}
        self.weights = {
            key: torch.from_numpy(stored[key]) for key in stored if key.startswith(("transformer.", "lm_head."))
        }
        matrices = [key for key in self.weights if ".c_" in key and key.endswith("weight")]  # here output × input
        save_checkpoint(directory, self.weights | {key: self.weights[key].T for key in matrices})
        config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 3, "n_positions": 11}
        config |= {"n_embd": 48, "n_layer": 3, "n_head": 3, "tie_word_embeddings": False}
        (directory / "config.json").write_text(json.dumps(config))
        self.model = regard.load(directory)

    def expected(self) -> dict[str, Tensor]:
        """Their numbers by our names, (rows, …)."""
        p, block = self.partials, "decoder.0"
        return {
            "embed.tokens": self.weights["transformer.wte.weight"][self.ids],
            "embed.positions": self.weights["transformer.wpe.weight"][None],
            "embed.out": p["x"],
            f"{block}.norm_1.out": p["ln1"],
            f"{block}.attention.Q": p["q"],
            f"{block}.attention.K": p["k"],
            f"{block}.attention.V": p["v"],
            f"{block}.attention.masked": p["att"],
            f"{block}.attention.weights": p["attSm"],
            f"{block}.attention.Z": p["y"].unflatten(-1, (3, 16)).transpose(1, 2),  # (1, h, N, d_k)
            f"{block}.attention.M": p["yProj"],
            f"{block}.H": p["attnResid"],
            f"{block}.norm_2.out": p["ln2"],
            f"{block}.mlp.up": p["fc"],
            f"{block}.mlp.act": p["gelu"],
            f"{block}.mlp.out": p["mlp"],
            **{f"decoder.{i}.out": p[f"block{i}"] for i in range(3)},
            "final_norm.out": p["ln_f"],
            "logits": p["lm_head"],
            "probabilities": p["probs"],
        }


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Nano:
    return Nano(tmp_path_factory.mktemp("gpt-nano-sort"))


@torch.no_grad()
def in_one_batch(nano: Nano) -> list[dict[str, Tensor]]:
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x.expand(3, *x.shape[1:])
        return x

    with watching(keep):
        nano.model(nano.ids)
    seen["probabilities"] = seen["logits"].softmax(-1)
    return [{name: x[row] for name, x in seen.items()} for row in range(3)]


def one_by_one(nano: Nano) -> list[dict[str, Tensor]]:
    traces = [nano.model.trace(row) for row in nano.ids.tolist()]
    return [{name: trace.tensor(name) for name in trace.nodes()} for trace in traces]


@pytest.mark.parametrize("run", [in_one_batch, one_by_one])
def test_every_number_of_a_run(nano: Nano, run: Callable[[Nano], list[dict[str, Tensor]]]) -> None:
    runs = run(nano)
    for name, rows in nano.expected().items():
        for seen, row in zip(runs, rows, strict=False):  # some were stored for the first input only
            torch.testing.assert_close(seen[name], row, rtol=0, atol=1e-5, msg=f"{name}: {{}}".format)


def test_it_sorts(nano: Nano) -> None:
    """Six letters in, the same six in order out: what the model was trained for."""
    for letters in ([2, 1, 0, 2, 1, 0], [0, 0, 2, 1, 0, 1], [1, 0, 2, 1, 2, 2]):
        (answer,) = nano.model.answers(letters, max_new_tokens=5, temperature=0, eos_token_id=[])[0]
        last = int(nano.model([*letters, *answer.ids])[0, -1].argmax())
        assert [*answer.ids, last] == sorted(letters)


# ── latin2nqo: a transliterator trained with fairseq ─────────────────────────────────────────────────────────────────

LATIN2NQO = {
    "model_type": "vaswani",
    "src_vocab_size": 776,
    "tgt_vocab_size": 832,
    "d_model": 128,
    "encoder_layers": 5,
    "decoder_layers": 5,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 512,
    "decoder_ffn_dim": 512,
    "normalize_before": True,
    "position_style": "fairseq",
}


@pytest.mark.skipif("REGARD_LATIN2NQO" not in os.environ, reason="REGARD_LATIN2NQO does not name latin2nqo's directory")
@torch.no_grad()
def test_latin2nqo(tmp_path: Path) -> None:
    source = Path(os.environ["REGARD_LATIN2NQO"])
    (tmp_path / "model.safetensors").symlink_to(source / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LATIN2NQO))
    model, reference = regard.load(tmp_path), json.loads((source / "reference.json").read_text())
    for case in reference["cases"]:
        ids, written = case["source_ids"], case["greedy_target_ids"]
        assert [2, *model.answers(ids, temperature=0)[0][0].ids] == written
        logits = model(ids, written[:-1])[0]
        assert logits[0, :8].tolist() == pytest.approx(case["first_position_logits_0_8"], abs=2e-5)
        assert logits[-1, :8].tolist() == pytest.approx(case["last_position_logits_0_8"], abs=2e-5)
