/**
 * The likeliest pieces in a table: logit, scaled, kept or not, probability, and before the edits if there are any.
 *
 * In: an answer of /output and perhaps the one before. Out: a table that starts short. Logits and probabilities are links to
 * their derivations.
 */

import { button, el, format, number, signed } from "regard/dom.js";
import { bar } from "regard/parts/bars.js";
import { isRival } from "regard/parts/run.js";
import { show } from "regard/tokens.js";

/** @typedef {{ logit: number | null, probability: number, id?: number, least?: number }} Known */

const FEW = 12;

/** @param {Context} ctx @param {Shown} shown */
export function pieces(ctx, { answer, before, position }) {
  const { rows, vocabulary, kind, drawn } = answer;
  const sampled = kind === "next";
  const past = before ? new Map(before.rows.map((row) => [nameOf(ctx, row), row])) : null;
  const most = rows.reduce((top, row) => Math.max(top, row.probability, sampled ? row.final : 0), 0);
  const line = (/** @type {AnswerRow} */ row) =>
    el(
      "tr",
      { class: `${sampled && !row.kept ? "faded" : ""}${drawn && row.id === drawn.id ? " chosen" : ""}` },
      el(
        "th",
        { scope: "row", title: `id ${row.id}` },
        el("span", { class: "piece" }, show(row.piece)),
        drawn && row.id === drawn.id ? el("span", { class: "hint" }, " drawn") : null,
      ),
      el("td", {}, number(ctx, row.logit, "logits", [position, row.id], { digits: 2 })),
      sampled ? el("td", {}, format(row.scaled, 2)) : null,
      el(
        "td",
        { class: "adds" },
        bar(row.probability, most),
        number(
          ctx,
          row.probability,
          ctx.nodes.has("probabilities") && untouched(ctx, sampled) ? "probabilities" : null,
          [position, row.id],
          { text: share(row.probability) },
        ),
      ),
      sampled
        ? el(
            "td",
            { class: "adds" },
            row.kept
              ? [bar(row.final, most), el("span", { class: "number" }, share(row.final))]
              : el("span", { class: "hint" }, "left out"),
          )
        : null,
      past ? el("td", {}, shareOf(past.get(nameOf(ctx, row)))) : null,
    );
  const heads = [
    "token",
    "logit",
    ...(sampled ? ["÷ T"] : []),
    sampled ? "softmax over all" : "probability",
    ...(sampled ? ["after leaving out"] : []),
    ...(past ? [isRival(ctx) ? "in A" : "before the edit"] : []),
  ];
  const body = el("tbody", {}, rows.slice(0, FEW).map(line));
  const shown = rows.slice(0, FEW).reduce((sum, row) => sum + row.probability, 0);
  const rest = el(
    "p",
    { class: "hint" },
    `The other ${vocabulary - Math.min(FEW, rows.length)} tokens share ${format(100 * Math.max(0, 1 - shown), 2)} %. `,
  );
  if (rows.length > FEW) {
    const more = button(`Show ${rows.length}`, () => {
      body.append(...rows.slice(FEW).map(line));
      rest.remove();
    });
    rest.append(more);
  }
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      { class: "figures pieces" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((word) => el("th", { scope: "col" }, word)),
        ),
      ),
      body,
    ),
    rest,
  );
}

/**
 * With Δ: the pieces whose probability changed most, before, after and the difference.
 * A piece that is listed in one run only is looked up in the other's logits, where there are all of them; of one that cannot be,
 * it is known that it is less likely than those listed. Another model may number its pieces otherwise: there the spelling counts.
 * @param {Context & { other: Trace }} ctx @param {Shown & { before: Answer, there: number }} shown
 */
export async function changedPieces(ctx, { answer, before, position, there }) {
  /** @param {RunData} runData @param {number} at */
  const row = ({ slice }, at) =>
    ctx.state.rival
      ? null
      : slice("logits", [at, ":"]).then(
          ({ values }) => values,
          () => null,
        );
  const [past, now] = await Promise.all([row(ctx.data.of(ctx.base), there), row(ctx.data.of(ctx.other), position)]);
  /** @param {Answer} from @param {Float32Array | null} logits @returns {(id: string | number) => Known} */
  const known = (from, logits) => {
    const rows = new Map(from.rows.map((one) => [nameOf(ctx, one), one]));
    const [{ scaled, logit: raw }] = from.rows;
    const scale = raw ? scaled / raw : 1; // 1 / T
    const least = from.rows.at(-1)?.probability;
    return (/** @type {string | number} */ id) => {
      const row = rows.get(id);
      if (row) return row;
      const logit = logits?.[Number(id)];
      if (logit === undefined) return { logit: null, probability: 0, least };
      return { logit, probability: Math.exp(logit * scale - from.highest) / from.sum };
    };
  };
  const [a, b] = [known(before, past), known(answer, now)];
  const names = new Map([...before.rows, ...answer.rows].map((one) => [nameOf(ctx, one), one.piece]));
  const all = [...names].map(([id, piece]) => ({
    id,
    piece,
    a: a(id),
    b: b(id),
    change: b(id).probability - a(id).probability,
  }));
  all.sort((x, y) => Math.abs(y.change) - Math.abs(x.change));
  const most = Math.abs(all[0].change) || 1;
  const line = (/** @type {(typeof all)[number]} */ { id, piece, a: old, b: fresh, change }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", title: ctx.state.rival ? null : `id ${id}` }, el("span", { class: "piece" }, show(piece))),
      el("td", {}, old.logit === null ? "·" : format(old.logit, 2)),
      el(
        "td",
        {},
        fresh.logit === null ? "·" : number(ctx, fresh.logit, "logits", [position, fresh.id ?? Number(id)], { digits: 2 }),
      ),
      el("td", {}, old.logit === null || fresh.logit === null ? "·" : signed(fresh.logit - old.logit, 2)),
      el("td", {}, atMost(old)),
      el("td", {}, atMost(fresh)),
      el(
        "td",
        { class: "adds" },
        bar(change, most, "middle"),
        el("span", { class: "number" }, old.least || fresh.least ? `≈ ${signed(change, 4)}` : signed(change, 4)),
      ),
    );
  const heads = ["token", "logit before", "after", "Δ", "probability before", "after", "Δ"];
  const body = el("tbody", {}, all.slice(0, FEW).map(line));
  const rest = button(`Show ${all.length}`, () => {
    body.append(...all.slice(FEW).map(line));
    rest.remove();
  });
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      { class: "figures pieces changed" },
      el("caption", {}, "The tokens whose probability changed most"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((word) => el("th", { scope: "col" }, word)),
        ),
      ),
      body,
    ),
    all.length > FEW ? rest : null,
  );
}

/**
 * What a piece is called in both runs: its id, or between two models its spelling.
 * @param {Context} ctx @param {{ id: number, piece: string }} given
 */
const nameOf = ({ state }, { id, piece }) => (state.rival ? piece : id);

/** @param {AnswerRow} [row] */
const shareOf = (row) => (row ? share(row.probability) : "·");

/** @param {Known} known */
const atMost = ({ probability, least }) => (least ? `< ${share(least)}` : share(probability));

/**
 * A probability for a table: four decimals, powers of ten only where those would be zero.
 * @param {number} p
 */
export const share = (p) => (p >= 0.00005 ? p.toFixed(4) : format(p, 2));

/**
 * The run's own probabilities have no temperature: only at 1 is the number in the table the node's.
 * @param {Context} ctx @param {boolean} sampled
 */
const untouched = ({ state }, sampled) => !sampled || state.temperature === 1;
