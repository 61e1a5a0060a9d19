"""Text ⇄ ids: tokenizers, chat templates, streaming decode."""
