/**
 * English. Keys are in the order of the scene, from the whole model to one number.
 * @type {Sentences}
 */
export const en = {
  "header.text": "Text",
  "header.text.hint": "Type a text and press Enter",
  "header.target": "Target text for the decoder; empty lets it write itself",
  "header.target.hint": "target: the model's own words",
  "header.examples": "Examples for this model",
  "header.run": "Run",
  "header.next": "next word ▶",
  "header.next.means": "Let the words flow through the model, and take the word it draws",
  "header.model": "model",
  "header.tours": "Tour",
  "header.present": "Present",
  "header.present.means": "For an audience",
  "header.share": "Share",
  "header.keys": "Keys",
  "header.again": "Start again",

  "purpose.toy-gpt": "a story writer",
  "purpose.toy-translate": "a translator, English → French",
  "purpose.toy-bert": "a gap filler for film reviews",
  "purpose.toy-bert-sentiment": "a judge of film reviews",
  "purpose.toy-bert-tags": "a grammar tagger",
  "purpose.smollm2": "SmolLM2, a chat model",
  "purpose.minilm": "MiniLM, a comparer of sentences",

  set: "Settings",
  "set.language": "language",
  "set.theme": "Light or dark",
  "set.seed": "seed",
  "set.seed.means": "Draws are repeatable: the same seed gives the same text",
  "set.temperature": "T",
  "set.temperature.means": "Temperature: logits are divided by it before the softmax; 0 always takes the likeliest",
  "set.top_k": "top-k",
  "set.top_k.means": "Only the k likeliest tokens may be drawn; 0 allows all",

  share: "Share",
  "share.link": "Address of this view",
  "share.copy": "Copy",
  "share.copied": "Copied.",
  "share.selected": "Selected: copy it with Ctrl+C.",
  "share.qr": "QR code of this view's address",
  "share.view": "The address holds text, model, view and edits: whoever opens it sees what you see.",
  "share.local":
    "This address only works on this computer. To hand the view on, save it as a file, or write a site with “regard site”.",
  "share.file": "Save this run as one file that opens anywhere",

  "path.whole": "Whole model",
  "path.block": "{stack} block {block}",
  "path.head": "head {head}",
  "path.number": "why?",

  "word.title": "Word {position}, {piece}: follow it",
  "gate.name": "block {block}",
  "gate.title": "Open block {block} of the {stack}",
  "guess.title": "If the model stopped after block {block}, it would say {piece} ({percent} %)",
  "answer.next": "what comes next",
  "answer.mask": "what fits in the gap",
  "answer.class": "what the text is",
  "answer.tags": "what the word is",
  "answer.title": "{piece}: {percent} %",
  "meaning.title": "texts as points ({kept} % of their differences)",
  "meaning.open": "Similarity {similarity}: read “{text}” instead",

  "head.name": "head {head}",
  "head.cross": "head {head}, across",
  "head.title": "Open head {head} of block {block}",
  "head.off": "switched off",
  "head.effect": "off: {before} → {after} %",
  "added.attention": "attention adds {norm}",
  "added.cross": "cross attention adds {norm}",
  "added.mlp": "the MLP adds {norm}",
  "added.title": "All {d} numbers that are added to the word, and their length",

  "cell.open": "Open this cell",
  "cell.q": "q of “{piece}”: what it asks",
  "cell.k": "k of “{piece}”: what it answers to",
  "cell.products": "q × k, number by number: {n} products, to be added up",
  "cell.shares": "“{piece}” shares its attention out; “{other}” gets {percent} %",
  "cell.v": "v of “{piece}”: what it hands over",
  "cell.carried": "{weight} × v: what “{piece}” contributes",
  "value.title": "Why this number?",

  close: "Close",
  voice: "Voice",
  "voice.story": "story",
  "voice.numbers": "numbers",
  "voice.mathematics": "mathematics",

  "whole.row": "row {position}",
  "whole.changing": "Block by block its guess changes: {guesses}.",
  "whole.same": "After every block its guess is the same: {guess}.",
  "whole.next.bold": "The model has read {n} pieces of a text. Which word does it write next?",
  "whole.next.plain": "Follow the thick ribbon, “{word}”. {guesses} Amber lines are words it looked at.",
  "whole.next.plain:numbers":
    "{n} [[token|tokens]], {blocks} [[block|blocks]] of {heads} [[head|heads]], {d} numbers per token. After the last block “{word}” becomes “{answer}” with {percent} %.",
  "whole.next.plain:mathematics":
    "Each row is a vector of ℝ^{d} in the [[residual|residual stream]]; the [[logits]] of {row} are its product with the [[unembedding]], and softmax makes them probabilities.",
  "whole.mask.bold": "One word is hidden. Which one fits?",
  "whole.mask.plain":
    "Follow the thick ribbon, “{word}”. {guesses} Amber lines are words it looked at, before and after it.",
  "whole.mask.plain:numbers":
    "{n} [[token|tokens]], {blocks} [[block|blocks]] of {heads} [[head|heads]], {d} numbers per token. “{answer}” gets {percent} %.",
  "whole.mask.plain:mathematics":
    "Each row is a vector of ℝ^{d} in the [[residual|residual stream]]; softmax over the [[vocabulary]] is taken at {row}.",
  "whole.class.bold": "What kind of text is this?",
  "whole.class.plain": "The words look at each other, and one of them, “{word}”, speaks for all: {answer}, {percent} %.",
  "whole.class.plain:numbers":
    "{n} [[token|tokens]], {blocks} [[block|blocks]] of {heads} [[head|heads]]. The classes share 100 %; “{answer}” gets {percent} %.",
  "whole.class.plain:mathematics":
    "The vector of {row}, in ℝ^{d}, is multiplied with one weight vector per class; softmax makes shares of the results.",
  "whole.tags.bold": "What is each word?",
  "whole.tags.plain": "Every word gets a label of its own. Followed here: “{word}”, which is {answer} with {percent} %.",
  "whole.tags.plain:numbers":
    "{n} [[token|tokens]], {blocks} [[block|blocks]] of {heads} [[head|heads]]. “{word}”: “{answer}”, {percent} %.",
  "whole.tags.plain:mathematics":
    "At every row the vector of ℝ^{d} is multiplied with one weight vector per label; softmax follows.",
  "whole.vector.bold": "The text becomes a list of {d} numbers.",
  "whole.vector.plain": "Texts that mean the same get similar lists. Followed here: “{word}”.",
  "whole.translate.bold": "The encoder has read {m} pieces; the decoder writes.",
  "whole.translate.plain":
    "Above, the source; below, the translation. Follow “{word}”: amber lines that cross over are source words it looked at. Next comes “{answer}”, {percent} %.",

  "whole.recurrent.bold": "The network reads one word after another and keeps a state of {d} numbers.",
  "whole.recurrent.plain":
    "Each word changes the state, and the state is all that the next one gets to see. Followed here: “{word}”; next comes “{answer}”, {percent} %.",

  "block.bold": "Block {block}: {heads} heads look around, then the MLP works on what was found.",
  "block.plain":
    "The heads stand in the order of what switching them off does to “{answer}” ({percent} %). Click one to open it.",
  "block.plain:numbers":
    "Below a head: the probability of “{answer}” without it. What the parts add to the word's vector has the lengths {parts}.",
  "block.plain:mathematics":
    "Every part reads the [[residual|residual stream]] and adds a vector to it; the lengths ‖·‖ of what is added here are {parts}.",
  "block.waiting.plain":
    "Each head is one way of looking: the darker a cell, the more its row looks at its column. Click one to open it.",
  "block.beside.bold": "Block {block}: {heads} heads look around, and beside them the MLP works on the same input.",
  "block.alone.bold": "Block {block}: {heads} heads look around.",
  "block.edited.bold": "Block {block}, with an edit in it.",
  "block.edited.plain": "All numbers here are those of the edited run. Hold B to see it without the edit.",

  "head.bold": "Head {head}: “{word}” looks at “{other}”.",
  "head.plain":
    "Its question ([[query|q]]) fits the label ([[key|k]]) of “{other}” best, so {percent} % of what is carried onward ([[value|v]]) comes from there. Click the cell for the sum behind it.",
  "head.plain:numbers":
    "The weight of “{other}” is {percent} % of the row, the largest of it. Step through the matrix: {steps}.",
  "head.plain:mathematics":
    "The matrix goes through {steps}, with {d_k} numbers per query and key. The weights of a row multiply the values, and the products are summed.",
  "head.itself.bold": "Head {head}: “{word}” looks at itself.",
  "head.itself.plain":
    "{percent} % of what this head carries onward is what the word brought along. Click a cell for the sum behind it.",
  "head.steps.bold": "Head {head}: “{word}” looks at “{other}”.",
  "head.steps.plain":
    "After all steps ({steps}) the weight of “{other}” is the largest of the row, {weight}. Click the cell for the sum behind it.",
  "head.edited.bold": "Head {head} with an edit: the largest weight of “{word}” is at “{other}”, {weight}.",
  "head.edited.plain": "An edit changes {edited} of this head. All numbers here are those of the edited run.",
  "head.switched.bold": "Head {head} is switched off.",
  "head.switched.plain":
    "It still looks, but what it finds is set to zero before it is added. The bars show what that changes.",
  "head.waiting.bold": "Head {head} of block {block}",
  "head.waiting.plain": "One way of looking: the darker a cell, the more its row looks at its column.",

  "cell.bold": "“{word}” gives “{other}” {percent} % of its attention.",
  "cell.plain":
    "The two lists of numbers are compared: where both are large with the same sign, they fit. The sum becomes a share of the row.",
  "cell.plain:numbers":
    "{d_k} products are added up, and the sum becomes the weight {weight}. Every number here can be asked why.",
  "cell.plain:mathematics":
    "q · k over {d_k} components, then the steps of this run, then a_ij v_j, which is summed over j.",
  "cell.steps.bold": "“{other}” has the weight {weight} in the row of “{word}”.",
  "cell.steps.plain":
    "The two lists of numbers are multiplied and added up; the sum goes through all steps ({steps}) and becomes the weight.",
  "cell.edited.bold": "With the edit, “{other}” has the weight {weight} in the row of “{word}”.",
  "cell.edited.plain":
    "An edit changes {edited} of this head, so the weight is not only a matter of how well the two lists fit.",
  "cell.waiting.bold": "“{word}” and “{other}”: how well do they fit?",
  "cell.waiting.plain": "The numbers of this cell are being fetched.",
  "cell.hidden.bold": "“{word}” may not look at “{other}”.",
  "cell.hidden.plain": "Its score is −∞ before the softmax, and e to that power is 0: hidden is not the same as small.",

  "number.bold": "Why this number?",
  "number.plain":
    "{node}[{index}] is computed from the numbers in the card; follow any of them, down to the weights. Backspace goes back.",

  "number.edited.bold": "Why this number?",
  "number.edited.plain":
    "An edit changes {node}; the card says what it would be without it, and what it is. Backspace goes back.",

  "edit.undo": "Undo this edit",
  "edit.effect": "{piece} {before} → {after} %",
  "edit.effect.other": "{piece} {before} → {after} %, now {other} {percent} %",
  "edit.compare": "before | after",

  "term.token": "token",
  "term.token.means":
    "A piece of text with a number of its own in the model's vocabulary: a word, a part of one, or a sign. The model reads and writes nothing else.",
  "term.block": "block",
  "term.block.means":
    "One layer of the model: attention, which moves information between words, and an MLP, which works on each word alone. Both add what they find to the word's vector.",
  "term.head": "head",
  "term.head.means":
    "One way of looking. Every head of a block has its own queries, keys and values, and so finds other words important.",
  "term.residual": "residual stream",
  "term.residual.means":
    "The vector that a word carries from block to block. Blocks read it and add to it; nothing overwrites it.",
  "term.logits": "logits",
  "term.logits.means": "One score for every token of the vocabulary. Softmax turns them into probabilities that sum to 1.",
  "term.unembedding": "unembedding",
  "term.unembedding.means": "The matrix that turns the last vector of a word into one score per token of the vocabulary.",
  "term.vocabulary": "vocabulary",
  "term.vocabulary.means": "All tokens that the model knows, each with its number.",
  "term.query": "query",
  "term.query.means":
    "A vector made of a word, which says what it is looking for. It is compared with the keys of the words it may see.",
  "term.key": "key",
  "term.key.means":
    "A vector made of a word, which says what it can be found by. Query times key, number by number and added up, is the score.",
  "term.value": "value",
  "term.value.means":
    "A vector made of a word, which says what it hands over to those that look at it, times their attention weight.",
};
