/**
 * What the page's own tours say, in English: tour.NAME.STEP.bold, .plain, .question, .choice.X and .answer. Words and numbers of the
 * run are in braces and are filled in from it (scene/facts.js).
 * @type {Sentences}
 */
export const toursEn = {
  "tour.again": "▶ watch again",
  "tour.reveal": "show the answer",
  "tour.guess": "Guess first.",
  "tour.real": "See it in a real model →",
  "tour.step": "Step {step} of {of}",
  "tour.at": "{step} of {of}",
  "tour.back": "Step back",
  "tour.next": "Next step",
  "tour.leave": "Leave the tour",
  "tour.return": "↩ back to the tour: {title}, {step} of {of}",
  "tour.menu": "Tours and lessons",
  "tour.menu.tours": "Tours",
  "tour.menu.lesson": "Lessons, number by number",
  "tour.menu.file": "From your files",

  "tour.story.title": "The story of one word",
  "tour.story.1.bold": "The model has read {n} pieces of a story. Which word does it write next?",
  "tour.story.1.plain": "Every row is a piece of the text. They flow to the right, through {blocks} blocks.",
  "tour.story.1.question": "Guess first, then press ▶ and watch it flow (3 s).",
  "tour.story.1.choice.king": "king",
  "tour.story.1.choice.woman": "woman",
  "tour.story.1.choice.house": "house",
  "tour.story.1.choice.unknown": "I don’t know",
  "tour.story.1.answer":
    "It says “{answer}” with {percent} %, then “{answer:2}” with {percent:2} %. Nobody wrote a rule for that. How does it come about?",
  "tour.story.2.bold": "It does not read letters, and not quite words, but pieces.",
  "tour.story.2.plain":
    "This text is {n} [[token|tokens]]: “{piece:1}” and “{piece:2}” begin it, and “{word}” is the last. Each is a number in a list of {vocabulary}.",
  "tour.story.3.bold": "Every piece becomes a list of {d} numbers.",
  "tour.story.3.plain":
    "The stripes are the first of them: blue below zero, orange above. From here on the model only computes with these lists.",
  "tour.story.4.bold": "Asked after every block, it makes a guess: from gate to gate it takes shape.",
  "tour.story.4.plain":
    "If it stopped after block 0 it would say “{guess:decoder.0}” ({percent:decoder.0} %), after block 1 “{guess:decoder.1}” ({percent:decoder.1} %), then “{guess:decoder.2}” ({percent:decoder.2} %), and at the end “{guess:decoder.3}” ({percent:decoder.3} %).",
  "tour.story.5.bold": "Inside block {block}, {heads} heads look around for “{word}”.",
  "tour.story.5.plain":
    "Each [[head]] is a way of looking: the darker a cell, the more its row looks at its column. Below each head: what becomes of “{answer}” without it.",
  "tour.story.6.bold": "Head {head} of block {block}: whom does the second “{word}” look at most?",
  "tour.story.6.plain":
    "It shares 100 % of its attention among the pieces up to itself; what comes later is hidden from it.",
  "tour.story.6.question": "Guess first.",
  "tour.story.6.choice.T": "“T”, the beginning",
  "tour.story.6.choice.king": "“king”",
  "tour.story.6.choice.the": "“the”, just before it",
  "tour.story.6.choice.unknown": "I don’t know",
  "tour.story.6.answer":
    "At “{looks}”, with {share} %. Its question ([[query|q]]) fits the label ([[key|k]]) of “{looks}” best, so {share} % of what it takes over ([[value|v]]) comes from there.",
  "tour.story.7.bold": "Where do the {weight} % come from? From {d_k} products, added up.",
  "tour.story.7.plain":
    "Above, what “{word}” asks and what “{other}” answers to, number over number. The sum is scaled, and becomes a share of its row.",
  "tour.story.8.bold": "And one number of q? It is {value}: a list of {d} numbers times {d} weights.",
  "tour.story.8.plain":
    "The card takes it apart, the largest products first. The W_q in it are weights, learned from stories: here the questions end. Every number of the page can be asked like this.",
  "tour.story.9.bold": "What if this head were switched off?",
  "tour.story.9.plain":
    "Head {head} still looks, but what it finds is no longer added. “{answer}” has {percent} % with it.",
  "tour.story.9.question": "What happens to the answer?",
  "tour.story.9.choice.same": "it stays the same",
  "tour.story.9.choice.less": "it becomes less likely",
  "tour.story.9.choice.other": "another word wins",
  "tour.story.9.choice.unknown": "I don’t know",
  "tour.story.9.answer":
    "“{was}” has {before} % with the head and {after} % without it. That is how one finds out what a part is for: switch it off and look. Now it is your turn: type a text of your own above.",
};
