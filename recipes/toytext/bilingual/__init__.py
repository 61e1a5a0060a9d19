"""A small grammar of English and French, side by side: words, phrases, clauses and how French spells them."""
