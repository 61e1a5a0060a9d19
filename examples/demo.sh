#!/bin/sh
# What `make demo` shows: every command is printed before it runs, so that it can be typed again.
set -e
cd "$(dirname "$0")/.."

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "$NO_COLOR" ] && [ "$TERM" != dumb ]; then
    bold=$(printf '\033[1m') dim=$(printf '\033[2m') plain=$(printf '\033[0m')
fi

heading() { printf '\n%s%s%s\n\n' "$bold" "$1" "$plain"; }
run() {
    printf '%s$' "$dim"
    for word in "$@"; do
        case $word in
            *[!A-Za-z0-9./_-]*) printf ' "%s"' "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '%s\n' "$plain"
    "$@"
}

heading "1. A chat model answers: SmolLM2, 135 million parameters, on this processor"
run regard chat smollm2 "What is the capital of France?" --temperature 0

heading "2. Where one of its 270 heads looks while it reads, from a real run"
run python examples/look_inside.py

heading "3. Attention by hand: a lecture's example, number by number"
run regard lesson three-inputs

heading "4. Sentences as vectors: the nearer to 1, the more alike (MiniLM, a BERT)"
run regard embed minilm "a cat on a mat" "a kitten on a rug" "stock prices fell" --compare

heading "5. Translation, reviews and tags by toy models that this package trained on text it generates"
run regard translate toy-translate "the European Economic Area" "The old king does not see the two white houses."
run regard classify toy-bert-sentiment "The movie had amazing visuals, but the story was quite boring."
run regard tag toy-bert-tags "The movie had amazing visuals, but the story was quite boring."

heading "6. What GPT-2 is made of, from its configuration alone"
run regard inspect gpt2

heading "7. Is it exact? Ways of computing the same thing, and transformers beside them"
run regard verify minilm

heading "Where to go next"
cat <<'END'
  . .venv/bin/activate             makes `regard` a command of this shell
  regard --help                    all verbs; regard VERB --help has examples
  regard chat                      a conversation with SmolLM2
  regard lesson                    the other lessons
  regard models                    which names there are; any Hugging Face
                                   directory or .gguf file opens too
  docs/index.md                    the documentation; `make docs` builds it
END
