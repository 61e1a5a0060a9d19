"""`regard chat`: its history, its commands, and Ctrl-C, which stops an answer and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest

from regard.cli import chat
from regard.cli.chat import Conversation, run_interactively


class Parrot:
    """A fake model: it answers with the message it was sent, word by word."""

    def __init__(self, interrupt_after=None):
        self.interrupt_after = interrupt_after

    def chat_ids(self, messages):
        return [f"{m['role']}={m['content']}" for m in messages]

    def stream(self, ids, **settings):
        for n, word in enumerate(ids):
            if n == self.interrupt_after:
                raise KeyboardInterrupt
            yield word + " "


@pytest.fixture
def conversation():
    parrot: Any = Parrot()
    return Conversation(parrot, {})


def said(conversation):
    return [(m["role"], m["content"]) for m in conversation.messages]


def test_the_history_is_sent_with_each_message(conversation, capsys):
    conversation.answer("one")
    conversation.answer("two")
    assert capsys.readouterr().out == "user=one \nuser=one assistant=user=one  user=two \n"
    assert [role for role, _ in said(conversation)] == ["user", "assistant"] * 2


def test_undo_takes_back_one_exchange_and_never_the_system_message(conversation, capsys):
    conversation.handle_line("/system Be brief.")
    conversation.handle_line("one")
    conversation.handle_line("two")
    conversation.handle_line("/undo")
    assert said(conversation) == [("system", "Be brief."), ("user", "one"), ("assistant", "system=Be brief. user=one ")]
    conversation.handle_line("/undo")
    conversation.handle_line("/undo")
    assert said(conversation) == [("system", "Be brief.")]
    assert capsys.readouterr().err.endswith("There are no messages yet.\n")


def test_reset_keeps_the_system_message_and_system_alone_drops_it(conversation):
    for line in ("/system Be brief.", "one", "/reset"):
        assert conversation.handle_line(line)
    assert said(conversation) == [("system", "Be brief.")]
    conversation.handle_line("/system")
    assert said(conversation) == []


def test_history_and_help_go_to_stderr(conversation, capsys):
    conversation.handle_line("one")
    capsys.readouterr()
    conversation.handle_line("/history")
    conversation.handle_line("/help")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("user: one\nassistant: user=one ")
    assert all(command in err for command in ("/system", "/reset", "/undo", "/history", "/exit"))


def test_unknown_commands_are_not_messages_and_paths_are(conversation, capsys):
    conversation.handle_line("/foo")
    assert said(conversation) == []
    assert capsys.readouterr().err == "There is no command /foo; /help lists them.\n"
    conversation.handle_line("/etc/hosts is what?")
    assert said(conversation)[0] == ("user", "/etc/hosts is what?")


@pytest.mark.parametrize("word", ["/exit", "/quit"])
def test_exit(conversation, word):
    assert not conversation.handle_line(word)


def test_an_interrupted_answer_is_kept_and_the_conversation_goes_on(monkeypatch, capsys):
    parrot: Any = Parrot(interrupt_after=2)
    conversation = Conversation(parrot, {}, system="Be brief.")
    monkeypatch.setattr(chat, "typed_lines", lambda: iter(["one", "/history"]))
    run_interactively(conversation)
    assert said(conversation) == [("system", "Be brief."), ("user", "one"), ("assistant", "system=Be brief. user=one ")]
    parrot.interrupt_after = 0
    monkeypatch.setattr(chat, "typed_lines", lambda: iter(["two"]))
    run_interactively(conversation)
    assert len(said(conversation)) == 3, "where nothing was answered, nothing was asked"


def test_an_error_does_not_end_the_conversation(tiny_model, monkeypatch, capsys):
    import regard

    conversation = Conversation(regard.load(tiny_model("chat")), {"max_new_tokens": 3})
    monkeypatch.setattr(chat, "typed_lines", lambda: iter(["word " * 200, "hi"]))
    run_interactively(conversation)
    assert "shorten the prompt" in capsys.readouterr().err
    assert [m["content"] for m in conversation.history if m["role"] == "user"] == ["hi"]


def test_typed_lines_end_with_ctrl_d_and_survive_ctrl_c(monkeypatch, capsys):
    answers: Iterator[str | type[BaseException]] = iter([" one ", KeyboardInterrupt, "two", EOFError])

    def typed(prompt=""):
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr("builtins.input", typed)
    assert list(chat.typed_lines()) == ["one", "two"]
    out, err = capsys.readouterr()
    assert out == "", "where stdout is a file, the prompt is not part of the answer"
    assert "/exit or Ctrl-D exits." in err


def test_lines_through_a_pipe_are_messages(regard, tiny_model):
    import regard as package

    model = package.load(tiny_model("chat"))
    first = model.chat("hi", max_new_tokens=4)
    exchange = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first}]
    second = model.chat([*exchange, {"role": "user", "content": "and you"}], max_new_tokens=4)
    ran = regard("chat", tiny_model("chat"), "--max-new-tokens", 4, stdin="hi\n\nand you\n/exit\nnever said\n")
    assert (ran.code, ran.out, ran.err) == (0, f"{first}\n{second}\n", "")


def test_one_message_and_a_system_message(regard, tiny_model):
    import regard as package

    model = package.load(tiny_model("chat"))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    ran = regard("chat", tiny_model("chat"), "hi", "--system", "Be brief.", "--max-new-tokens", 5)
    assert ran.out == model.chat(messages, max_new_tokens=5) + "\n"
    piped = regard("chat", tiny_model("chat"), "-", "--system", "Be brief.", "--max-new-tokens", 5, stdin="hi\n")
    assert piped == ran


def test_an_answer_is_never_longer_than_the_context(regard, tiny_model):
    """By default at most 512 tokens; a model with a smaller context gets that instead of an error."""
    assert regard("chat", tiny_model("chat"), "hi").code == 0
