"""SmolLM2's own file on the native engine: what it writes, how far its numbers are from the reference's, what it takes."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import regard
from regard.engine.generate import Answer, generate
from regard.engine.native.library import library
from regard.engine.native_engine import NativeDecoder, NativeEngine
from regard.engine.sampling import RowState
from regard.engine.weights import FileWeights
from regard.errors import ConfigError
from regard.store.hub import INSTALLABLE, installed

pytestmark = pytest.mark.skipif(library() is None, reason="the native engine is not built here")
QUESTIONS = (
    *("What is gravity?", "List five animals.", "Why is the sky blue?", "Write a poem about the sea."),
    *("Explain how a bicycle works.", "Tell me a story about a fox.", "What is the capital of France?"),
    *("How do I bake bread?", "Write a Python function that adds two numbers.", "Who was Isaac Newton?"),
)
NEAR_TIE = 0.01  # between the reference's two highest logits, which differ by several units as a rule


@pytest.fixture(scope="module")
def smollm2():
    if installed(INSTALLABLE["smollm2"]) is None:
        pytest.skip("smollm2 is not installed (regard pull smollm2)")
    return regard.load("smollm2")


@torch.no_grad()
def test_smollm2_writes_what_the_reference_on_its_numbers_would(smollm2):
    """Greedy, 256 tokens. The reference reads what was written, all at once: as long as its best token is the one written,
    it would have written the same. That is so in nine of ten texts; where one parts, two tokens were all but equal."""
    assert smollm2._net is None
    assert smollm2.engine.arena.size < 1.02 * smollm2.path.stat().st_size
    prompts = [smollm2.chat_ids(question) for question in QUESTIONS]
    rows = [RowState(smollm2.settings.replace(temperature=0.0), ids, limit=256) for ids in prompts]
    written = generate(NativeDecoder(smollm2.engine, prompts, 256), rows, range(10))
    answers = [answer.ids for answer in written if isinstance(answer, Answer)]
    assert sum(map(len, answers)) > 1000
    equal = 0
    for prompt, ids in zip(prompts, answers, strict=True):
        logits = smollm2([*prompt, *ids])[0, len(prompt) - 1 : -1]
        parted = next((i for i, id in enumerate(ids) if int(logits[i].argmax()) != id), None)
        equal += parted is None
        if parted is not None:
            assert float(logits[parted].max() - logits[parted, ids[parted]]) < NEAR_TIE
    assert equal >= 9


@torch.no_grad()
def test_smollm2_differs_from_the_reference_by_the_rounding_of_inputs(smollm2):
    """Keys and values in 32 bits: what is left is that inputs of products have 15 bits, 3e-5 of their block's largest."""
    prompt = smollm2.chat_ids(QUESTIONS[0])
    ours = NativeDecoder(NativeEngine(smollm2.spec, FileWeights(smollm2.opened)), [prompt], 1).prefill()[0]
    theirs = smollm2(prompt)[0, -1]
    assert np.abs(ours - theirs).max() < 1e-3 * np.abs(theirs).max()


def test_smollm2_writes_the_same_with_guesses(smollm2):
    prompt = smollm2.chat_ids("Repeat after me: one two three four, one two three four, one two three four.")
    for asked in ({"temperature": 0.0}, {"temperature": 0.7, "seed": 3}):
        plain, guessed = (smollm2.answers(prompt, max_new_tokens=48, prompt_lookup=n, **asked) for n in (0, 8))
        assert guessed == plain


MEMORY = """
import regard, sys
def resident(what):
    return int(next(line for line in open("/proc/self/status") if line.startswith(what)).split()[1]) << 10
def write(name, prompt, new):
    model = regard.load(name, engine="native")
    list(model.stream_tokens([5 + i % 50 for i in range(prompt)], max_new_tokens=new, min_new_tokens=new, temperature=0.0))
    return model
toy = write("toy-gpt", 20, 4)  # all libraries are there
before = resident("VmRSS")
model = write("smollm2", 512, 28)
model.chat_ids("Hello!")
print(resident("VmRSS") - before, resident("VmHWM") - before, model.path.stat().st_size, model.slot_bytes(540))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_smollm2_takes_the_memory_of_its_file(smollm2):
    """At most 1.3 times the file, tokenizer and buffers included, and its keys and values; and while it is read, when there
    are both the file and what is made of it, not twice the file."""
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    kept, most, file, cache = map(int, ran.stdout.split())
    assert file < kept < 1.3 * file + cache
    assert most < 1.6 * file + cache


ALONE = """
import sys, regard
model = regard.load("smollm2")
print(model.chat("What is the capital of France?", temperature=0.7, seed=1, top_p=0.9, max_new_tokens=12))
print(len(model.answers("The sea", num_beams=3, n=2, max_new_tokens=4)[0]))
print(repr(model), "torch" in sys.modules)
"""


def test_smollm2_talks_without_pytorch(smollm2):
    """Importing it would take longer than everything else until the first word; with it, the words are the same."""
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    said, beams, told = ran.stdout.strip().rsplit("\n", 2)
    question = "What is the capital of France?"
    assert said == smollm2.chat(question, temperature=0.7, seed=1, top_p=0.9, max_new_tokens=12)
    assert (beams, told) == ("2", "<regard.Model smollm2: llama, decoder, 134,515,008 parameters> False")


def test_smollm2_remembers_in_eight_bits(smollm2):
    """Half of the memory, and the same words where each leads by more than three: an 8-bit cache moves SmolLM2's logits by
    some tenths. What it computes is proved on a small network, in tests/laws/test_engine_native.py."""
    eight = regard.load("smollm2", cache="q8")
    assert eight.slot_bytes(1000) < 0.6 * smollm2.slot_bytes(1000)
    prompt = [*smollm2.chat_ids("What is the capital of France?"), *smollm2.tokenizer.encode("The")]
    ours, theirs = (m.answers(prompt, temperature=0.0, max_new_tokens=5)[0][0] for m in (eight, smollm2))
    assert theirs.text == " capital of France is Paris"
    assert ours.ids == theirs.ids
    assert ours.logprobs != theirs.logprobs
    with pytest.raises(ConfigError, match=r"cache is 'q9'; it can be f32, f16, q8\."):
        regard.load("smollm2", cache="q9")
