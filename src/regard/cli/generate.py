"""`regard generate`: text generation."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import (
    AsJSON,
    Cache,
    Device,
    Dtype,
    MaxNewTokens,
    MinP,
    ModelName,
    PromptLookup,
    RepetitionPenalty,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    generation_settings,
    load_model,
    print_json,
    print_stderr,
    progress,
    text_or_stdin,
)

if TYPE_CHECKING:
    from regard.engine.generate import Answer


def command(
    model: ModelName,
    prompt: Annotated[
        str | None, typer.Argument(help="The text to continue; without it, standard input.", metavar="PROMPT")
    ] = None,
    max_new_tokens: MaxNewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    num_beams: Annotated[int | None, typer.Option(help="Beam search with this many beams.", metavar="N")] = None,
    n: Annotated[int | None, typer.Option("-n", "--n", help="How many samples to generate.", metavar="N")] = None,
    stop: Stop = None,
    seed: Seed = None,
    prompt_lookup: PromptLookup = None,
    control: Annotated[
        bool, typer.Option("--control", help="Parse special tokens that are written in the prompt.")
    ] = False,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
    cache: Cache = None,
) -> None:
    """Generate text that continues a prompt. Settings that are not given are those of the model's own files, else
    decoding is greedy.

    regard generate smollm2 "The capital of France is" --max-new-tokens 20
    regard generate smollm2 "Once upon a time" --temperature 0.8 --seed 7 -n 3
    regard generate smollm2 "Water boils at" --num-beams 4 --json
    regard generate smollm2 --max-new-tokens 50 < story.txt
    """
    settings = generation_settings(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        num_beams=num_beams,
        n=n,
        stop=stop,
        seed=seed,
        prompt_lookup=prompt_lookup,
    )
    text = text_or_stdin(prompt)
    loaded = load_model(model, device, dtype, cache)
    chosen = loaded.settings.replace(**settings)
    if not json and chosen.num_beams == 1 and chosen.n == 1:
        for piece in loaded.stream(text, control=control, **settings):
            print(piece, end="", flush=True)
        print()
        return
    if chosen.n > 1 and chosen.num_beams == 1 and chosen.temperature == 0:
        print_stderr(
            f"regard: at temperature 0 all {chosen.n} answers are the same; give --temperature or --num-beams."
        )
    settings["seed"] = chosen.seeded().seed
    with progress("Generating", "answers"):
        answers = loaded.answers(text, control=control, **settings)[0]
    if json:
        print_json([as_record(a, settings["seed"]) for a in answers])
    elif len(answers) == 1:
        print(answers[0].text)
    else:
        for i, answer in enumerate(answers, 1):
            score = "" if answer.score is None else f", score {answer.score:.4f}"
            print(f"── {i} of {len(answers)}{score} ──\n{answer.text}\n")


def as_record(answer: "Answer", seed: int) -> dict[str, object]:
    return {
        "text": answer.text,
        "finished": answer.finished,
        "score": answer.score,
        "seed": seed,
        "ids": answer.ids,
        "logprobs": answer.logprobs,
    }
