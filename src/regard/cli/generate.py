"""`regard generate`: continue a text."""

import sys
from typing import Annotated

import typer

from regard.cli.say import (
    AsJSON,
    Device,
    Dtype,
    MaxNewTokens,
    MinP,
    ModelName,
    RepetitionPenalty,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    given,
    load_model,
    print_json,
)


def command(
    model: ModelName,
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from standard input.")],
    max_new_tokens: MaxNewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    num_beams: Annotated[int | None, typer.Option(help="Beam search with this many beams.")] = None,
    n: Annotated[int | None, typer.Option("-n", "--n", help="How many answers.")] = None,
    stop: Stop = None,
    seed: Seed = None,
    control: Annotated[bool, typer.Option("--control", help="Read control tokens spelt in the prompt.")] = False,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Continue a text.

    [dim]regard generate smollm2 "The capital of France is" --max-new-tokens 20[/dim]
    [dim]regard generate smollm2 "Once upon a time" --temperature 0.8 --seed 7 -n 3[/dim]
    """
    loaded = load_model(model, device, dtype)
    text = sys.stdin.read() if prompt == "-" else prompt
    settings = given(
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
        control=control,
    )
    if not json and not (num_beams or 1) > 1 and not (n or 1) > 1:
        for piece in loaded.stream(text, **settings):
            print(piece, end="", flush=True)
        print()
        return
    answers = loaded.answers(text, **settings)[0]
    if json:
        print_json(
            [
                {"text": a.text, "ids": a.ids, "logprobs": a.logprobs, "finished": a.finished, "score": a.score}
                for a in answers
            ]
        )
        return
    for i, answer in enumerate(answers):
        print(("" if i == 0 else "---\n") + answer.text)
