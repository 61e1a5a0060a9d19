"""An untrained model is fine-tuned on three answers: from a file of conversations to `model.chat`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import regard
import tiny_text
from regard.api import train_settings, train_with
from regard.text.chat_template import encode_chat
from regard.train.encoding import ChatEncoding
from regard.train.preprocess import PackedTokenizer
from regard.train.settings import TrainSettings
from regard.train.task import task_named

ANSWERS = {"what is red": "a rose", "what is blue": "the sea at noon", "what is green": "grass"}


def conversation(*questions: str) -> list[dict[str, str]]:
    turns = [({"role": "user", "content": q}, {"role": "assistant", "content": ANSWERS[q]}) for q in questions]
    return [message for turn in turns for message in turn]


@pytest.fixture(scope="module")
def new_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_text.save("chat", tmp_path_factory.mktemp("chat"))


def test_the_loss_is_over_the_assistant_s_tokens(new_run: Path) -> None:
    """Two conversations of different lengths in a batch: the sum of -log p over what the assistant says and its turn's
    end, as computed one conversation at a time from the logits."""
    model = regard.load(new_run)
    talks = [conversation(*ANSWERS), conversation("what is red")]
    encoding = ChatEncoding(PackedTokenizer(model.tokenizer), 200)
    task = task_named("chat")(TrainSettings("chat"), model.tokenizer)
    examples: list[Any] = [encoding.encode({"messages": talk}) for talk in talks]
    batch = task.collate(examples, torch.Generator())
    expected, count = 0.0, 0
    for talk in talks:
        ids = torch.tensor(encode_chat(model.tokenizer, talk, add_generation_prompt=False))
        costs = F.cross_entropy(model.net(ids[None])[0, :-1].float(), ids[1:], reduction="none")
        for i in range(1, len(talk), 2):
            first = len(encode_chat(model.tokenizer, talk[:i], add_generation_prompt=True))
            last = len(encode_chat(model.tokenizer, talk[: i + 1], add_generation_prompt=False))
            expected += float(costs[first - 1 : last - 1].sum())
            count += last - first
    assert batch.count == count
    assert float(task.loss(model.net, batch).plain) == pytest.approx(expected, rel=1e-5)


def test_a_fine_tuned_model_gives_the_trained_answers(new_run: Path, tmp_path: Path) -> None:
    talks = [conversation(question) for question in ANSWERS] + [conversation(*ANSWERS)]
    lines = [json.dumps({"messages": talk}) + "\n" for talk in talks]
    data = tmp_path / "talks.jsonl"
    data.write_text("".join(lines))
    given: dict[str, Any] = {
        "data": [str(data)],
        "eval_data": [str(data)],
        "out": str(tmp_path / "run"),
        "start": str(new_run),
    }
    given |= {
        "max_steps": 120,
        "eval_steps": 60,
        "batch_size": 4,
        "learning_rate": 1e-2,
        "warmup_steps": 5,
        "threads": 1,
    }
    before = regard.load(new_run)
    assert [before.chat(q, max_new_tokens=20, temperature=0) for q in ANSWERS] != list(ANSWERS.values())
    run = train_with(train_settings("chat", None, given))
    model = regard.load(run)
    for question, answer in ANSWERS.items():
        assert model.chat(question, max_new_tokens=20, temperature=0) == answer
    messages = [*conversation("what is red"), {"role": "user", "content": "what is blue"}]
    (written,) = model.answers(model.chat_ids(messages), max_new_tokens=20, temperature=0)[0]
    assert model.chat(messages, max_new_tokens=20, temperature=0) == written.text
    losses = [
        line["eval"]["loss"]
        for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if "eval" in line
    ]
    assert losses[-1] < 0.1
