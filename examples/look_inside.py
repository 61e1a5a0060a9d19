"""Where does SmolLM2 look while it reads? Prints, for every word, the word that one head attends to most."""

import regard

model = regard.load("smollm2")
trace = model.trace("The pizza came out of the oven and it tasted good")

layer, head = 13, 8  # this head looks for what the sentence is about
A = trace[f"decoder.{layer}.attention.weights"][head]  # (N, T): how much word i looks at word j
words = [token.strip() for token in trace.tokens]
print(f"Layer {layer}, head {head}, {len(words)} words; each word's weights sum to {A.sum(-1).mean():.4f}.\n")
for i, word in enumerate(words):
    j = int(A[i].argmax())
    print(f"{word:>8} looks at {words[j]:<6} {A[i, j]:.3f} {'█' * round(30 * float(A[i, j]))}")

names = trace.nodes()
print(f"\nThis run has {len(names)} tensors to look at, from {names[0]} to {names[-1]}.")
