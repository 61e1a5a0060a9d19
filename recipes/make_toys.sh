#!/bin/sh
# Generates the text, trains the toy models one after the other and saves them in src/regard/models/.
# Usage: sh recipes/make_toys.sh [WORK]     (WORK: the directory for text and runs; default runs/toys)
set -e
cd "$(dirname "$0")/.."
work=${1:-runs/toys}
bin=.venv/bin
mkdir -p "$work"

text() { PYTHONPATH=recipes "$bin/python" -m toytext "$@"; }
text translate --n 120000 --seed 0 --split train --out "$work/pairs.tsv"
text translate --n 1500 --seed 0 --split dev --out "$work/pairs.dev.tsv"
text stories --n 30000 --seed 0 --split train --out "$work/stories.txt"
text stories --n 300 --seed 0 --split dev --out "$work/stories.dev.txt"
text reviews --n 20000 --seed 0 --split train --out "$work/reviews.tsv"
text reviews --n 800 --seed 0 --split dev --out "$work/reviews.dev.tsv"
text reviews --n 12000 --seed 1 --split train --out "$work/reviews.conllu"
text reviews --n 800 --seed 0 --split dev --out "$work/reviews.dev.conllu"
cut -f1 "$work/reviews.tsv" > "$work/reviews.txt"
cut -f1 "$work/reviews.dev.tsv" > "$work/reviews.dev.txt"

train() { # name, task, training file, held-out file, further flags
    name=$1 task=$2 data=$3 held_out=$4
    shift 4
    "$bin/regard" train "$task" --config "recipes/$name.toml" --data "$work/$data" --eval-data "$work/$held_out" \
        --out "$work/$name" "$@"
    "$bin/regard" convert "$work/$name" "src/regard/models/$name" --dtype float16
}
train toy-translate translate pairs.tsv pairs.dev.tsv
train toy-gpt lm stories.txt stories.dev.txt
train toy-bert mlm reviews.txt reviews.dev.txt
train toy-bert-sentiment classify reviews.tsv reviews.dev.tsv --from "$work/toy-bert"
train toy-bert-tags tag reviews.conllu reviews.dev.conllu --from "$work/toy-bert"
