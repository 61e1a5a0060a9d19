"""Task heads on the last hidden states: masked-LM transform, classifier, token classifier, pooler."""

from typing import Any

from regard.nn.linear import Linear
from regard.nn.norm import LayerNorm
from regard.nn.operations import activation, pick
from regard.nn.part import Dropout, Part
from regard.nn.see import see


class Pooler(Part):
    """tanh(W x_first + b): the first token's state as a vector for the whole text (BERT)."""

    def __init__(self, d: int) -> None:
        self.dense = Linear(d, d)

    def forward(self, X: Any) -> Any:
        return see("out", activation(see("dense", self.dense(pick(X, row=0))), function="tanh"))  # (B, d)


class MaskedHead(Part):
    """dense → activation → norm: BERT's transform, before the unembedding."""

    def __init__(self, d: int, activation: str, eps: float) -> None:
        self.dense, self.norm, self.activation = Linear(d, d), LayerNorm(d, eps), activation

    def forward(self, X: Any) -> Any:
        return self.norm(see("act", activation(see("dense", self.dense(X)), function=self.activation)))


class Classifier(Part):
    """A linear map to the classes, of one vector per sequence or of every token's vector."""

    def __init__(self, d: int, n_labels: int, dropout: float = 0.0) -> None:
        self.out, self.dropout = Linear(d, n_labels, out="class"), Dropout(dropout)

    def forward(self, X: Any) -> Any:
        return self.out(self.dropout(X))


class DenseClassifier(Part):
    """tanh(W x + b), then a linear map to the classes (RoBERTa, BART)."""

    def __init__(self, d: int, n_labels: int, dropout: float = 0.0) -> None:
        self.dense, self.out, self.dropout = Linear(d, d), Linear(d, n_labels, out="class"), Dropout(dropout)

    def forward(self, X: Any) -> Any:
        act = see("act", activation(see("dense", self.dense(self.dropout(X))), function="tanh"))
        return self.out(self.dropout(act))
