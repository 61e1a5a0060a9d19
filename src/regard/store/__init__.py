"""Files ⇄ named tensors: what a checkpoint holds, whichever way it was written down."""
