"""`regard chat`: history is kept, commands do what they say, Ctrl-C stops an answer and nothing else."""

import pytest

from regard.cli import chat
from regard.cli.chat import Talk, converse


class Parrot:
    """Stands where a model stands: says back what it was sent, word by word."""

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
def talk():
    return Talk(Parrot(), {})


def said(talk):
    return [(m["role"], m["content"]) for m in talk.messages]


def test_history_is_sent_along(talk, capsys):
    talk.say("one")
    talk.say("two")
    assert capsys.readouterr().out == "user=one \nuser=one assistant=user=one  user=two \n"
    assert [role for role, _ in said(talk)] == ["user", "assistant"] * 2


def test_undo_takes_back_one_exchange_and_never_the_system_message(talk, capsys):
    talk.obey("/system Be brief.")
    talk.obey("one")
    talk.obey("two")
    talk.obey("/undo")
    assert said(talk) == [("system", "Be brief."), ("user", "one"), ("assistant", "system=Be brief. user=one ")]
    talk.obey("/undo")
    talk.obey("/undo")
    assert said(talk) == [("system", "Be brief.")]
    assert capsys.readouterr().err.endswith("Nothing was said yet.\n")


def test_reset_keeps_the_system_message_and_system_alone_drops_it(talk):
    for line in ("/system Be brief.", "one", "/reset"):
        assert talk.obey(line)
    assert said(talk) == [("system", "Be brief.")]
    talk.obey("/system")
    assert said(talk) == []


def test_history_and_help_go_to_stderr(talk, capsys):
    talk.obey("one")
    capsys.readouterr()
    talk.obey("/history")
    talk.obey("/help")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("user: one\nassistant: user=one ")
    assert all(command in err for command in ("/system", "/reset", "/undo", "/history", "/exit"))


def test_unknown_commands_are_not_said_and_paths_are(talk, capsys):
    talk.obey("/foo")
    assert said(talk) == []
    assert capsys.readouterr().err == "There is no command /foo; /help lists them.\n"
    talk.obey("/etc/hosts is what?")
    assert said(talk)[0] == ("user", "/etc/hosts is what?")


@pytest.mark.parametrize("word", ["/exit", "/quit"])
def test_exit(talk, word):
    assert not talk.obey(word)


def test_an_interrupted_answer_is_kept_and_the_conversation_goes_on(monkeypatch, capsys):
    talk = Talk(Parrot(interrupt_after=2), {}, system="Be brief.")
    monkeypatch.setattr(chat, "typed_lines", lambda: iter(["one", "/history"]))
    converse(talk)
    assert said(talk) == [("system", "Be brief."), ("user", "one"), ("assistant", "system=Be brief. user=one ")]
    talk.model.interrupt_after = 0
    monkeypatch.setattr(chat, "typed_lines", lambda: iter(["two"]))
    converse(talk)
    assert len(said(talk)) == 3, "where nothing was answered, nothing was asked"


def test_a_refusal_does_not_end_the_conversation(tiny_model, monkeypatch, capsys):
    import regard

    talk = Talk(regard.load(tiny_model("chat")), {"max_new_tokens": 3})
    monkeypatch.setattr(chat, "typed_lines", lambda: iter(["word " * 200, "hi"]))
    converse(talk)
    assert "shorten the prompt" in capsys.readouterr().err
    assert [m["content"] for m in talk.history if m["role"] == "user"] == ["hi"]


def test_typed_lines_end_with_ctrl_d_and_survive_ctrl_c(monkeypatch, capsys):
    answers = iter([" one ", KeyboardInterrupt, "two", EOFError])

    def typed(prompt=""):
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr("builtins.input", typed)
    assert list(chat.typed_lines()) == ["one", "two"]
    out, err = capsys.readouterr()
    assert out == "", "where stdout is a file, the prompt is not part of the answer"
    assert "/exit or Ctrl-D leaves." in err


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
    """Unless told, 512 tokens; a smaller model gets what it has room for instead of a refusal."""
    assert regard("chat", tiny_model("chat"), "hi").code == 0
