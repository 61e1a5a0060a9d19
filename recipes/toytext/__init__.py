"""Text for toy models, generated from small grammars: translations, stories and reviews, the same for everybody."""
