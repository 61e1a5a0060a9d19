"""A program that runs where PyTorch is out of reach, as after `pip install regard` alone.

python tests/without_torch.py api ENGINE FOLDER    what a `Model` does, as JSON
python tests/without_torch.py serve                what a server answers, as JSON
python tests/without_torch.py regard VERB …        the command line
"""

import importlib.abc
import json
import sys
from pathlib import Path
from typing import Any

HIDDEN = ("torch", "transformers", "matplotlib", "sacrebleu")
REVIEW = "The movie had amazing visuals, but the story was quite boring."
MESSAGES = [{"role": "user", "content": "the king"}]


class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def api(engine: str, folder: str) -> dict[str, Any]:
    """Asked alike here and, by tests/api/test_without_torch.py, of PyTorch."""
    import regard

    gpt, mlm, classifier, tagger, translator = (
        regard.load(name, engine=engine)
        for name in ("toy-gpt", "toy-bert", "toy-bert-sentiment", "toy-bert-tags", "toy-translate")
    )
    greedy = {"temperature": 0.0, "max_new_tokens": 12}
    ids = gpt.tokenizer.encode("The old king")
    chat = regard.load(Path(folder) / "chat", engine=engine)
    slots = gpt.slots(2, 64)
    found = {
        "native": gpt.engine is not None,
        "generate": gpt.generate(["Sara loved", "The old king and the old woman"], **greedy),
        "sample": gpt.generate("Sara loved", n=3, seed=7, max_new_tokens=12),
        "beams": gpt.generate("Sara loved", num_beams=3, n=2, max_new_tokens=12),
        "stream": list(gpt.stream("Sara loved", **greedy)),
        "chat": chat.chat(MESSAGES, **greedy),
        "translate": translator.translate(["The woman eats a red apple.", "I see"]),
        "embed": mlm.embed([REVIEW, "I loved it."]).tolist(),
        "embed of a decoder": gpt.embed(["Sara loved", "a"]).tolist(),
        "classify": classifier.classify([REVIEW, "I loved it."]),
        "tag": [[word.tag for word in words] for words in tagger.tag([REVIEW, "I loved it."])],
        "fill": mlm.fill("The movie had amazing [MASK], but the [MASK] was quite boring."),
        "score": list(gpt.score("The old king", " went to the forest.")),
        "score of a target": list(translator.score("I see", "Je vois")),
        "logits": gpt(ids)[0, -1].tolist(),
        "quantised": regard.load("toy-gpt", engine=engine, quantize="q8")(ids)[0, -1].tolist(),
        "cost": gpt.rounding_cost("q4").perplexity,
        "slots": slots.feed([piece(0, ids), piece(1, ids[:2])]).tolist(),
    }
    forms: list[tuple[str, dict[str, Any]]] = [("hf", {}), ("hf", {"dtype": "bfloat16"}), ("gguf", {})]
    for form, more in [*forms, ("blocks", {"quantize": "q8"})]:
        model = mlm if form == "blocks" else gpt
        name = f"{form} {' '.join(more.values())}".strip()
        path = model.save(Path(folder) / engine / name, form, **more)
        again = regard.load(path, engine=engine)
        found[f"saved {name}"] = again([ids])[0, -1].tolist()
        if not more:
            assert all((again.arrays[name] == W).all() for name, W in gpt.arrays.items())
    return found


def piece(slot: int, ids: list[int]) -> Any:
    from regard.engine.slots import SlotInput

    return SlotInput(slot, ids, True)


def serve() -> dict[str, Any]:
    from starlette.testclient import TestClient

    from regard.serve.model_registry import ModelRegistry
    from regard.serve.openai import make_server
    from regard.serve.served_models import ServedModels

    app = make_server(ServedModels(ModelRegistry(["toy-gpt", "toy-bert", "toy-translate"])))
    asked = {
        "/v1/completions": {"model": "toy-gpt", "prompt": "Sara loved", "max_tokens": 12, "temperature": 0},
        "/v1/embeddings": {"model": "toy-bert", "input": [REVIEW]},
        "/v1/translations": {"model": "toy-translate", "input": ["I see"]},
    }
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        return {path: client.post(path, json=body).json() for path, body in asked.items()}


def main() -> None:
    sys.meta_path.insert(0, Hidden())
    what, *given = sys.argv[1:]
    if what == "regard":
        from regard.cli.main import run

        sys.argv = ["regard", *given]
        run()
    work: Any = {"api": api, "serve": serve}[what]
    print(json.dumps(work(*given)))


if __name__ == "__main__":
    main()
