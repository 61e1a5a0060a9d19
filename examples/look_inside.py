"""Where does SmolLM2 look while it reads? Prints, for every word, the word that one head attends to most."""

import regard

model = regard.load("smollm2")
trace = model.trace("The pizza came out of the oven and it tasted good")

layer, head = 13, 8  # this head looks for what the sentence is about
A = trace[f"decoder.{layer}.attention.weights"][head]  # (N, T): how much word i looks at word j
print(f"layer {layer}, head {head}: weights {tuple(A.shape)}, rows sum to {A.sum(-1).mean():.4f}\n")
for i, word in enumerate(trace.tokens):
    j = int(A[i].argmax())
    print(f"{word:>10} looks at {trace.tokens[j]:<10} {A[i, j]:.3f}")

print("\nEverything this run passed through, first and last:")
print(*trace.nodes()[:4], "…", *trace.nodes()[-3:], f"({len(trace.nodes())} in all)", sep="\n  ")
