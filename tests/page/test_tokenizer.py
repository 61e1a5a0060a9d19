"""The tokenizer in a real browser, whose Unicode version is neither Node's nor Python's."""

from browser import Screen
from nasty_texts import NASTY, random_texts
from regard.page.browser_tokenizer import browser_tokenizer
from regard.store.hub import bundled
from regard.text.tokenizer import load_tokenizer

RUN = """async ([data, texts]) => {
  const { openTokenizer } = await import("regard/offline/tokenizer/tokenizer.js");
  const tokenizer = openTokenizer(data);
  return texts.map((text) => tokenizer.encode(text));
}"""


def test_a_text_has_pythons_ids_and_offsets(screen: Screen) -> None:
    page, texts = screen.visit(model="toy-gpt"), [*NASTY, *random_texts(1000)]
    for name in ("toy-gpt", "toy-bert"):
        tokenizer = load_tokenizer(bundled()[name])
        found = page.evaluate(RUN, [browser_tokenizer(tokenizer), texts])
        for text, got in zip(texts, found, strict=True):
            want = tokenizer.encode_with_offsets(text)
            assert (got["ids"], [tuple(pair) for pair in got["offsets"]]) == want, text
