#!/bin/sh
# What `make demo` shows: every command is printed before it runs, so that it can be typed again.
set -e

heading() { printf '\n\033[1m%s\033[0m\n\n' "$1"; }
run() {
    printf '\033[2m$ regard'
    for word in "$@"; do case $word in *' '*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac; done
    printf '\033[0m\n'
    regard "$@"
}

heading "1. A real chat model answers (SmolLM2, 135 million parameters, on this CPU)"
run chat smollm2 "What is the capital of France, and what is it famous for?" --temperature 0 --max-new-tokens 80

heading "2. A lecture's example, worked number by number"
run lesson three-inputs

heading "3. Sentences as vectors: the higher the number, the more alike (MiniLM, a BERT)"
run embed minilm "the cat sat on the mat" "a kitten rested on a rug" "stock prices fell sharply" --compare

heading "4. What a model is made of, from its configuration alone"
run inspect gpt2

heading "5. Is it exact? Different ways of computing the same thing, and transformers beside them"
run verify minilm

heading "Where to go next"
cat <<'EOF'
  . .venv/bin/activate                            then `regard --help` works everywhere
  regard chat                                     talk with SmolLM2
  regard models                                   which models there are; any Hugging Face directory or .gguf file works too
  regard lesson                                   the other lessons
  python examples/look_inside.py                  the attention of a real run, from Python
  docs/walk.md                                    one sentence, followed through every file of this package
EOF
