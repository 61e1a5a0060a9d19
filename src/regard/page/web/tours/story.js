/**
 * The story of one word: nine steps from a guess to a weight. What is said is in words/tours-en.js, under tour.story.1 to .9.
 */

const RUN = { model: "toy-gpt", text: "The old king and the old" };
const HEAD = { ...RUN, site: "decoder.2.attention", head: 1, token: 6, key: 3 }; // the second “old” looks at “king”

/** @type {Tour} */
export const story = {
  name: "story",
  steps: [
    {
      view: RUN,
      choices: [{ is: "king" }, { is: "woman" }, { is: "house" }, { is: "unknown" }],
      right: "{answer}",
      flow: true,
    },
    { view: RUN, spot: ["words"] },
    { view: RUN, spot: ["words", "vectors"] },
    { view: RUN, spot: ["guesses", "answer", "streams"] },
    { view: { ...HEAD, key: 0, depth: 1 } },
    {
      view: { ...HEAD, key: 6, depth: 2 },
      choices: [{ is: "T" }, { is: "king" }, { is: "the" }, { is: "unknown" }],
      right: "{looks}",
      hides: ["matrix"],
      reveal: { key: HEAD.key },
    },
    { view: { ...HEAD, depth: 3 } },
    { view: { ...HEAD, depth: 4, node: "decoder.2.attention.Q", index: [1, 6, 0] } },
    {
      view: { ...HEAD, key: 0, depth: 1 },
      choices: [{ is: "same" }, { is: "less" }, { is: "other" }, { is: "unknown" }],
      right: "{fate}",
      hides: ["effects"],
      reveal: { edits: { "decoder.2.attention.head.1": "zero" } },
    },
  ],
};
