"""Model cards: name, kind and example texts of each model that the page offers."""

from typing import TYPE_CHECKING, Any

from regard.model.shapes import count_parameters

if TYPE_CHECKING:
    from regard.serve.model_registry import ModelEntry

REVIEW = "The movie had amazing visuals, but the story was quite boring."
EXAMPLES = {
    "toy-gpt": [
        "Sara loved a red ring more than anything.",
        "The old king and the old woman",
        "Three children want to build a little boat.",
    ],
    "toy-translate": [
        "the European Economic Area",
        "The old king does not see the two white houses.",
        "The woman eats a red apple.",
    ],
    "toy-bert": ["The movie had amazing [MASK], but the story was quite boring.", "I loved the [MASK]."],
    "toy-bert-sentiment": [REVIEW, "The actors were wonderful.", "The story was not boring."],
    "toy-bert-tags": [REVIEW, "The actors were not very good."],
}
EXAMPLES_OF_HEADS = {
    "lm": ["The capital of France is", "Once upon a time there was a small", "The cat sat on the mat because it was"],
    "mlm": ["The capital of France is [MASK].", "The cat [MASK] on the mat."],
    "classify": [REVIEW],
    "tag": ["The old man saw a small dog in Paris."],
    "none": [
        "The cat sat on the mat because it was tired.",
        "a kitten on a rug",
        "Stocks fell sharply on Monday.",
        "The market lost five percent in a day.",
        "How do I bake bread?",
        "a recipe for a loaf with yeast",
    ],
}


def model_card(entry: "ModelEntry") -> dict[str, Any]:
    spec, tokenizer = entry.opened.spec, entry.opened.tokenizer
    examples = EXAMPLES.get(entry.name) or EXAMPLES_OF_HEADS[spec.head.kind]
    mask = tokenizer.specials.get("mask") if tokenizer else None
    return {
        "name": entry.name,
        "kind": spec.kind,
        "family": spec.family,
        "head": spec.head.kind,
        "about": entry.about,
        "parameters": count_parameters(spec),
        "examples": [text.replace("[MASK]", mask or "[MASK]") for text in examples],
    }
