/**
 * The types of the page's data, for `tsc` and for whoever reads a module's comments. Nothing here reaches a browser.
 *
 * They are global, so that a comment can say `@param {Trace} trace` without an import. In order: what the server's /api answers,
 * the state and the context that panels are given, what is drawn, and what a file that is handed on carries.
 */

// The run, as /api/trace tells it.

/** A name of a stack: "encoder" or "decoder". */
type StackName = string;

/** A computed tensor of a run: "decoder.0.attention.weights". */
interface GraphNode {
  name: string;
  op: string;
  shape: number[];
  axes: string[];
  inputs: string[];
  facts: Facts;
}

/** What has a name in a run: its nodes, or numbers of them. What has no name is not among them. */
interface Named<T> extends Iterable<[name: string, T]> {
  get(name?: string | null): T | undefined;
  has(name?: string | null): boolean;
  keys(): Iterable<string>;
  values(): Iterable<T>;
}
type Nodes = Named<GraphNode>;

/** What is said beside a node's numbers; each node has those that its operation has. */
interface Facts {
  by?: number; // what scores, or embeddings, are multiplied with
  label?: string; // the same as it is written: "1/√d_k"
  said?: string; // of an attention's steps: what is done, in words
  several?: boolean; // operations in one node: none of them alone says what it is
  role?: "token" | "position"; // of an embedding: a row per id, or per position
  most?: number; // of a cap: what scores stay below
  function?: string; // of an activation: "gelu"
  eps?: number;
  window?: number;
  causal?: boolean;
  row?: number; // which token speaks for the text
}

/** A place where attention happens. */
interface Site {
  site: string; // "decoder.0.cross"
  kind: "self" | "causal" | "cross";
  stack: StackName;
  layer: number;
  heads: number;
  queries: string; // whose tokens ask: "source" or "target"
  keys: string;
  // Its nodes, by the graph's edges; null where a step has no name or is not taken.
  steps: string[]; // (head, query, key), in the order of the run: from Q Kᵀ (or a bias) to the weights
  weights: string; // the last step
  Q: string | null; // what is compared
  K: string | null;
  V: string | null; // what the weights mix
  Z: string; // what comes of it
  M: string | null; // what the heads together hand on
  masked: string | null; // the step that hides
}

/** How blocks are wired, by the graph's edges: nodes in their roles (model/wiring.py). */
interface Wiring {
  norms: Norm[];
  mlps: Mlp[];
  blocks: Block[];
  embeddings: { [stack: StackName]: string[] }; // what makes the input of the first block, which is the last
}

interface Norm {
  out: string; // what it hands on
  x: string; // what it reads
  normalised: string;
  spread: string; // variance, or mean square
  mean: string | null; // null in an RMSNorm
  gamma: string | null;
  beta: string | null;
}

/** Fan out, bend, fan in. gate and gated: only where a second projection is multiplied with what was bent. */
interface Mlp {
  up: string;
  gate: string | null;
  act: string;
  gated: string | null;
  out: string;
}

interface Block {
  place: string; // "decoder.0"
  stack: StackName;
  layer: number;
  sums: ResidualSum[];
  out: string;
}

/** A residual connection: node = stream + what each branch adds, and each branch is made of the stream. */
interface ResidualSum {
  node: string;
  stream: string;
  branches: Branch[];
}

/** What goes around the stream and is added to it. */
interface Branch {
  kind: string; // "attention", "cross attention", "MLP", or several
  node: string; // what it adds
  sites: string[]; // the attentions on the way,
  mlps: string[]; // what MLPs on the way hand on,
  norms: string[]; // and what norms of whole vectors do
}

/** A norm on the way of what a sum adds, with the first of the branches that read it and with all of them. */
interface NormAlong {
  out: string;
  branch: Branch;
  all: Branch[];
}

/** A generated token. `position`: none while it is being streamed. */
interface Step {
  piece: string;
  probability: number;
  position?: number;
  candidates?: [piece: string, id: number, probability: number][];
  done?: boolean; // of a stream: this is its end, and no token
}

/** An edit's verb: "zero", "off", {set: 0.5} … */
type Verb = string | { [verb: string]: number };
/** place → what is done there */
type Edits = { [place: string]: Verb };

interface Trace {
  trace: string; // its id
  model: string;
  text: string;
  tokens: string[];
  ids: number[];
  target_tokens: string[] | null;
  target_ids: number[] | null;
  nodes: GraphNode[];
  sites: Site[];
  wiring: Wiring;
  switches: { [place: string]: string[] }; // what can be off: the nodes that it concerns
  counted: { [place: string]: string }; // the node whose heads, neurons or rows have numbers
  masks: { [place: string]: string }; // the site whose mask it is
  head: "none" | "lm" | "mlm" | "classify" | "tag";
  labels: string[];
  deciding: (number | null)[] | null; // of a tagged text: by token, the first piece of its word
  steps: Step[];
  edits: Edits;
  edited: string[]; // the nodes that an edit wrote over
}

// Models.

/** An entry of /api/models. */
interface ModelCard {
  name: string;
  kind: ModelKind;
  family: string;
  head: Trace["head"];
  about: string;
  parameters: number;
  examples: string[];
}

type ModelKind = "encoder" | "decoder" | "encoder-decoder";

/** /api/model: what the map is drawn from. */
interface ModelFacts {
  name: string;
  kind: ModelKind;
  family: string;
  head: Trace["head"];
  labels: string[];
  context: number;
  vocabulary: number;
  d: number;
  recurrent: boolean;
  stacks: Stack[];
  parameters: number;
}

/** A transformer's stack; a recurrent one has `hidden` and `directions` instead of what is marked with *. */
interface Stack {
  name: StackName;
  layers: number;
  cross: boolean;
  hidden?: number;
  directions: number;
  heads: number; // *
  kv_heads: number; // *
  d_k: number; // *
  d_ff: number; // *
  wiring: string; // * "pre" | "post"
  norm: string; // *
  positions: string; // *
  activation: string; // *
  gated: boolean; // *
  mask: string; // *
  window: number | null; // *
  final_norm: boolean; // *
}

// Numbers.

/** Numbers in row-major order. */
interface Tensor {
  shape: number[];
  values: Float32Array;
}

/** A slice of a run, or the difference of two: there `absent` says why an entry has none (delta.js). */
interface Slice extends Tensor {
  absent?: Uint8Array;
}

/** Whatever holds numbers and can be read by index. */
type Numbers = Float32Array | Float64Array | Int32Array | number[];

/** Which part of a tensor: [3, ":", ":"], "3,:,:", or nothing for all of it. */
type At = string | (number | string)[] | null;

/** Who stands for whom between two runs: token j of the second is i of the first. */
interface Partner {
  get(j: number): number | undefined;
}
interface Partners {
  source: Partner;
  target: Partner;
}

/** What /why answers: a number taken apart. */
interface Why {
  node: string;
  index: number[];
  op: string;
  label: string;
  value: number;
  recomputed: number | null; // null: an exported file has not got the weights
  difference: number;
  tolerance: number;
  agrees: boolean;
  edited: boolean;
  symbols: string;
  numbers: string;
  latex: string;
  python: string;
  note: string;
  terms: Term[];
  rest: { count: number; sum: number };
}

interface Term {
  label: string;
  value: number;
  factors: Operand[];
  signs: string[]; // what stands before, between and after the factors; none: a product
}

interface Operand {
  node: string; // "": a constant of the formula
  index: number[];
  value: number;
  label: string;
}

/** /output: what the model says at a position. */
interface Answer {
  kind: "next" | "mask" | "class" | "tags";
  rows: AnswerRow[];
  kept: number;
  vocabulary: number;
  highest: number;
  sum: number;
  drawn: Drawn | null;
  position?: number;
}

interface AnswerRow {
  piece: string;
  id: number;
  logit: number;
  scaled: number;
  kept: boolean;
  probability: number;
  final: number;
}

interface Drawn {
  id: number;
  piece: string;
  probability: number;
  u: number | null; // the random number; none at temperature 0
  step?: number;
}

/** What the output's panel hands to its parts: an answer, and the one before the edits where there is one. */
interface Shown {
  answer: Answer;
  before: Answer | null;
  position: number;
  there: number | null; // the same position in the run before
}

/** By name, what /lens answers. */
interface Lenses {
  heads: { sites: { [site: string]: { [kind: string]: HeadScores } } };
  disagreement: { sites: { [site: string]: HeadScores } };
  ablation: { sites: { [site: string]: HeadScores } };
  attribution: { id: number; parts: { label: string; value: number; node: string }[]; bias: number; total: number };
  gradient: { id: number; values: number[]; target_values: number[] | null };
  logit_lens: { rows: { node: string; top: Guess[] }[] };
  rollout: { shape: number[]; values: Numbers };
  contribution: { norms: number[][]; weights: number[][]; disagreement: number | null };
  gates: { shape: number[] } & { [part in GatePart]: number[] };
}

type GatePart = "r" | "z" | "n" | "before" | "after";
/** A number per head, null where a head has none; null where the run gives no occasion. */
type HeadScores = (number | null)[] | null;
/** Of the logit lens. */
type Guess = [piece: string, id: number, probability: number];

interface LensParameters {
  token?: number;
  id?: number;
  site?: string;
  head?: number;
  stack?: StackName;
  layer?: number;
  node?: string;
}

interface OutputParameters {
  position?: number;
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  seed?: number;
}

// Training and lessons.

interface TrainingRun {
  name: string;
  steps: number[];
  probes: { text: string; tokens: string[][] }[];
  nodes: { probe: number; node: string; shape: number[] }[];
  error?: string;
}

/** A line of metrics.jsonl. */
interface MetricsLine {
  step: number;
  loss?: number;
  eval?: { loss?: number };
  layer_norms?: { [layer: string]: number };
  entropy?: { [site: string]: number[] };
}

/** A tour (scene/tour.js). What it says: in the tables of words/, or in the tour itself. */
interface Tour {
  name: string;
  title?: string;
  steps: TourStep[];
}

interface TourStep {
  view: Change; // what differs from the usual
  bold?: string;
  plain?: string;
  question?: string;
  choices?: { is: string; say?: string }[] | null; // to guess from, before the answer is shown
  right?: string; // the `is` of the right choice, a template
  answer?: string; // said afterwards
  reveal?: Change | null; // what the answer changes
  hides?: string[]; // parts of the scene until then: the answer and the guesses if it does not say
  spot?: string[]; // parts that are spoken of: the others step back
  flow?: boolean; // the words flow when the answer is shown
  figure?: Figure | null; // in the scene's place
  real?: Change | null; // where a model shows the same
}

/** What a step of a tour makes of the scene. */
interface Guide {
  hidden: boolean;
  figure: HTMLElement | null;
  words: { bold?: string; plain?: string; actions?: Child; foot?: Child };
  veil(picture: Picture): Picture;
}

/** A worked matrix of a lesson. */
interface Figure {
  formula: string;
  shape: number[];
  value: Nested | null;
  by_hand: string;
  rows: string[];
  columns: string[];
  bars: boolean | string;
}

type Nested = number | null | Nested[];

// Where questions go: the server, or a file (data.js, offline.js).

/** The questions about one run, by its id. */
interface Backend {
  live: boolean; // any text, any edit
  honours?(place: string, what: Verb): boolean; // of a file: whether it can make this edit
  models(): Promise<ModelCard[]>;
  model(name: string): Promise<ModelFacts>;
  trace(request: TraceRequest): Promise<Trace>;
  fork(id: string, edits: Edits): Promise<Trace>;
  slice(id: string, node: string, at?: At): Promise<Tensor>;
  why(id: string, node: string, index: number[], most?: number): Promise<Why>;
  lens<K extends keyof Lenses>(id: string, name: K, parameters?: LensParameters): Promise<Lenses[K]>;
  output(id: string, parameters?: OutputParameters): Promise<Answer>;
  compare(a: string, b: string): Promise<{ align: [number, number][]; target_align: [number, number][] | null }>;
  embed?(model: string, texts: string[]): Promise<Tensor>; // a file has one text
  generate(request: GenerateRequest): AsyncGenerator<Step>;
  runs(): Promise<TrainingRun[]>;
  run?(name: string): Promise<{ lines: MetricsLine[] }>; // a file has no training runs
  frame?(run: string, step: number, probe: number, node: string): Promise<Tensor>;
  tours(): Promise<{ name: string; title: string; kind: "lesson" | "file" }[]>;
  tour(name: string): Promise<Tour>;
  worksheet(trace: string, seed: number, level: string): Promise<{ html: string }>;
  file(id: string): string;
}

interface TraceRequest {
  model: string;
  text: string;
  target: string | null;
  generate: { max_new_tokens: number; seed: number; temperature: number; top_k: number } | null;
  edits: Edits;
}

interface GenerateRequest {
  model: string;
  text: string;
  seed: number;
  temperature: number;
  top_k: number;
  max_new_tokens: number;
}

/** The same questions about one run. */
interface RunData {
  slice(node: string, at?: At): Promise<Slice>;
  why(node: string, index: number[], most?: number): Promise<Why>;
  lens<K extends keyof Lenses>(name: K, parameters?: LensParameters): Promise<Lenses[K]>;
  output(parameters?: OutputParameters): Promise<Answer>;
}

/** … and about the run on the screen, which may be the difference of two. */
interface ViewData extends RunData {
  of(trace: Trace): RunData;
  both<T>(ask: (data: RunData) => Promise<T>): Promise<[before: T | null, after: T]>;
  partners(): Promise<Partners>;
  before(node: string, index: number[]): Promise<number[] | null>; // null: a token has no counterpart
}

// The state, and what panels are given.

/** Before the edits, after them, or the difference. */
type Mode = "a" | "b" | "delta";

/** The page's state, as the address says it (state.js). */
interface State {
  readonly model: string;
  readonly text: string;
  readonly target: string;
  readonly fresh: number;
  readonly seed: number;
  readonly temperature: number;
  readonly top_k: number;
  readonly top_p: number;
  readonly min_p: number;
  readonly stage: string;
  readonly site: string;
  readonly head: number;
  readonly token: number;
  readonly key: number;
  readonly node: string;
  readonly index: number[];
  readonly trail: [node: string, index: number[]][];
  readonly edits: Edits;
  readonly mode: Mode;
  readonly against: string;
  readonly rival: string;
  readonly view: string;
  readonly run: string;
  readonly step: number;
  readonly tour: string;
  readonly page: number;
  readonly present: number;
  readonly depth: number;
  readonly matrix: string;
  readonly voice: string;
  readonly lang: string;
}

type Change = Partial<State>;

/** What holds the state (createState). */
interface Store {
  readonly now: State;
  set(change: Change, how?: { replace?: boolean }): void;
  note(change: Change): void;
  follow(hash: string): void;
  link(change: Change): string;
}

interface ContextBase {
  backend: Backend;
  model: ModelFacts;
  trace: Trace; // the run on the screen
  base: Trace; // the run before
  state: State;
  head: number;
  nodes: Nodes;
  data: ViewData;
  go(change: Change): void; // merge, write the address, draw
  note(change: Change): void; // merge and write the address; the screen already shows it
  link(change: Change): string; // the address of that view, for an href
  ask(node: string, index: number[]): void; // open the drawer
  why(node: string, index: number[]): string; // the same as an href
  edit(place: string, what: Verb): void;
  can(place: string, what: Verb): boolean;
  light(...pairs: (StackName | number)[]): void; // (stack, i, stack, j): light words of the sentence
  models: ModelCard[];
}

/** One run, or two of which both are there. */
type Runs = { mode: "a"; other: Trace | null } | { mode: "b" | "delta"; other: Trace };

/** What panels are given (main.js). `site`: the attention site looked at; a network without attention has none. */
type Context = ContextBase & Runs & ({ site: Site } | { site: null });
/** A context in which an attention site is looked at. */
type SiteContext = Context & { site: Site };

/** A panel of the stage: its default export. */
interface Panel {
  id: string;
  title: string;
  render(root: HTMLElement, ctx: Context): unknown;
}
/** id, title, and the kind of network that has it, when not all do. */
type PanelEntry = [id: string, title: string, of?: string];

/** Where an attention site's queries and keys come from. */
interface Sides {
  queries: string[];
  keys: string[];
  from: [StackName, StackName];
}

// What is drawn.

/** What an element holds: null, undefined and false are left out. */
type Child = Node | string | null | undefined | false | Child[];

/** What can be chosen from (picker, choice). */
type Options<V extends string | number = string | number> = [value: V, text: Child, title?: string][];

/** Of `el` and `svg`. */
interface Attributes {
  on?: { [event in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[event]) => unknown };
  style?: { [property: string]: string | number };
  data?: { [name: string]: string | number | null | undefined };
  [name: string]: unknown;
}

/** From one number to another. */
type Span = [from: number, to: number];
type Cell = [row: number, column: number];
type Colour = [r: number, g: number, b: number];
type Scale = "diverging" | "sequential";
type Role = "Q" | "K" | "V" | "A";
type Pen = CanvasRenderingContext2D;

/** The present theme's colours, for canvases (scale.js). */
interface Palette {
  diverging: number[][];
  sequential: number[][];
  ink: string;
  paper: string;
  faint: string;
  line: string;
  roles: { [role: string]: string };
  figures: string;
}

/** Of matrix.js, which says what each means. */
interface MatrixOptions {
  values: Float32Array;
  shape: number[];
  absent?: ArrayLike<number>;
  rows?: string[] | null;
  cols?: string[] | null;
  title?: Child;
  subtitle?: Child;
  axes?: string[];
  scale?: Scale;
  bound?: number;
  role?: Role;
  node?: string;
  index?: (r: number, c: number) => number[];
  ctx?: Context;
  say?: string;
  cursor?: Cell;
  moved?: (r: number, c: number) => void;
  hovered?: (r: number | null, c: number | null) => void;
  fit?: boolean;
  cell?: { min?: number; max?: number; h?: number };
  gutter?: number;
  height?: number;
  legend?: boolean;
}

/** How a matrix is laid out (layout.js). */
interface Room {
  cell: { w: number; h: number };
  left: number;
  top: number;
  right: number;
  slanted: boolean;
  whole: { width: number; height: number };
  height: number;
  wide: boolean;
  tall: boolean;
}

/** What is painted of a matrix (paint.js). */
interface PaintView extends Room {
  values: Float32Array;
  shape: number[];
  rows?: string[] | null;
  cols?: string[] | null;
  colour: (value: number) => number[];
  hover: Cell | null;
  cursor: Cell | null;
  x: number;
  y: number;
  width: number;
}

/** … with a pen, and what of it can be seen. */
interface Seen extends PaintView {
  pen: Pen;
  rowSpan: [number, number];
  colSpan: [number, number];
  atX: (c: number) => number;
  atY: (r: number) => number;
}

/** A line of a chart. tone: 0…1 (depth of a layer) or the name of a colour. */
interface Series {
  name: string;
  points: [x: number, y: number][];
  tone?: number | string;
  dots?: boolean;
}

/** A row of bars.js. */
interface BarRow {
  name: Child;
  value: number;
  number: Child;
  press?: () => void;
  note?: Child;
  faded?: boolean;
  chosen?: boolean;
  title?: string;
}

/** What the lines of the head view are as strong as, per head. */
interface Strength {
  weight: Float32Array;
  contribution?: Float32Array;
  shown: Float32Array;
}

/** The head view while it is looked at; alone: the token whose lines are left. */
interface LinesView {
  on: number[];
  numbers: Map<number, Strength>;
  mean: Float32Array;
  N: number;
  T: number;
  signed: boolean;
  most: number;
  alone: LinesToken | null;
}

interface LinesToken {
  side: "query" | "key";
  i: number;
}

/** A line of the residual stream (stream.js). */
interface StreamLine {
  node: string;
  kind: "start" | "part" | "add" | "sum" | "norm" | "folded";
  say: string;
  norm?: Norm; // that makes the line
  off?: string;
  open?: string;
}

// The scene.

/** Numbers that move: where a mark is, how large, how opaque. */
interface Geometry {
  [name: string]: number;
}
type Paint = (pen: Pen, g: Geometry) => void;

/** A part of the picture on the canvas. `from`: where it grows out of; `cells`: numbers that can be chosen. */
interface Mark {
  key: string;
  paint: Paint;
  g: Geometry;
  from?: Geometry;
  cells?: Cells;
  gone?: boolean;
}

/** A table's cells: what choosing one changes, what entering it does, and what it says. */
interface Cells {
  rows: number;
  columns: number;
  choose(row: number, column: number): Change;
  enter(row: number, column: number): Change;
  say(row: number, column: number): string;
}

/** Words over the canvas, perhaps a link. `math`: its text as a formula; g.w, g.h: of an area, else it is as large as its words. */
interface Thing {
  key: string;
  class: string;
  text: string;
  math?: string;
  g: Geometry;
  from?: Geometry;
  align?: "start" | "middle" | "end";
  href?: string | null;
  title?: string;
  label?: string;
  role?: string;
  current?: boolean;
  cover?: Geometry;
  gone?: boolean;
}
interface Picture {
  marks: Mark[];
  things: Thing[];
}

interface Clock {
  start(moving?: boolean): void;
  run(step: (now: number) => boolean): void;
  stop(): void;
}

/** The flow of words through the model (pulse.js). */
interface Pulse {
  goesOn(time: number): boolean;
  skip(): void;
  seen(picture: Picture, time: number): Picture;
}

interface SceneBlock extends Block {
  sites: Site[];
  mlps: string[];
}

/** A site's weights: (head, query, key), or of one query only. */
interface SiteWeights {
  whole: boolean;
  heads: number;
  rows: number;
  columns: number;
  values: Float32Array;
  causal: boolean; // what comes later is hidden
  tables?: Map<number, Tensor>;
}

/** The numbers that the scene draws (world.js). */
interface World {
  lanes: { stack: StackName; pieces: string[] }[];
  stack: StackName; // whose word is in focus
  focus: number;
  blocks: SceneBlock[];
  answer: Answer | null;
  ghosts: Answer | null; // the answer before an edit
  tags: (string | null)[] | null; // by token
  added: Map<string, Float32Array>; // by MLP, what it adds to the word in focus
  meaning: Meaning | null; // of an embedding model
  guesses: Map<string, Guess>; // by the node after which it is made
  embedded: Map<StackName, (Tensor & { node: string; d: number; norms: Float32Array }) | null>;
  streams: Map<string, Float32Array> | null;
  weights: Map<string, SiteWeights | null>;
}

/** Sentences as points: how similar each is to the text on the screen, and where it stands on a plane. */
interface Meaning {
  sentences: { text: string; similarity: number; x: number; y: number }[];
  kept: number; // the share of the vectors' variance that the plane shows
}

interface SceneView {
  open: number; // which block; -1: none
  depth: number;
  matrix: string; // the step that the matrix shows
}

interface Gate {
  x: number;
  y: number;
  w: number;
  h: number;
  block: SceneBlock;
  open: boolean;
  folded: boolean;
}

/** Where everything stands, in pixels (frame.js). */
interface Frame {
  width: number;
  height: number;
  upright: boolean;
  top: number;
  bottom: number;
  label: { x: number };
  strip: { x: number; w: number };
  stream: { x: number; w: number };
  answer: { x: number; w: number };
  lanes: Map<StackName, { top: number; bottom: number; rows: { y: number; h: number }[] }>;
  gates: Gate[];
  y(stack: StackName, i: number): number;
}

/** One head's numbers (near.js). heads: which of the heads of Q, K and V it reads. */
interface HeadNear {
  steps: Map<string, Tensor>;
  shares: Tensor | null; // the weights, NaN where they are hidden
  titles: { [node: string]: string };
  words: { [node: string]: string };
  Q: Tensor | null;
  K: Tensor | null;
  V: Tensor | null;
  heads: { Q: number; K: number; V: number };
}

/** What is asked for when a block is open: by site, what each head does; by node, what is added to the word. */
interface Near {
  effects: Map<string, HeadScores>;
  added: Map<string, { values: Float32Array; norm: number }>;
  head: HeadNear | null;
  failed: string;
}

type Sentences = { [key: string]: string };
type Say = (key: string, given?: { [name: string]: string | number }) => string;

/** What the modules of the scene are given. */
interface Stage {
  ctx: Context;
  world: World;
  view: SceneView;
  frame: Frame;
  near: Near | null;
  say: Say;
  depth: number;
  hidden: boolean; // the answer is not told yet
  surface: string;
  lane(stack: StackName): string[];
  isOff(site: Site, head: number): boolean;
}

// A file that is handed on (contents.py writes it).

/** Packed numbers (parcel.js). */
interface Parcel {
  shape: number[];
  type: "float32" | "float16" | "int32";
  data: string;
  bits?: number;
}

/** A weight; `of`: the one whose numbers it shares, `flip`: with its axes exchanged. */
interface PackedWeight extends Parcel {
  of?: string;
  flip?: boolean;
}

/** A formula as a tree (formula.js). */
type Tree = number | string | Call;
/** A list: ["at", node, ...index], ["Σ", variable, n, body], or a function and its arguments. */
type Call = [f: string, ...args: any[]];
type AtTree = ["at", name: string, ...index: Tree[]];
type OverTree = ["Σ" | "max", variable: string, n: number, body: Tree];
type NumberTree = number | ["num", value: number, label: string] | ["-∞"];

interface FileContents {
  model: ModelFacts;
  card: ModelCard;
  trace: Trace;
  formulas: { [node: string]: Tree };
  constants: { [name: string]: { shape: number[]; values: number[] } };
  letters: { [name: string]: [symbols: string, latex: string] };
  notes: { [node: string]: string };
  places: {
    switches: { [place: string]: [node: string, instead: string[]][] };
    counted: { [family: string]: [node: string, axis: number] };
    masks: { [place: string]: [scores: string, masked: string | null] };
    fixed: string[];
  };
  keeps: { all: boolean; bits: number; weights: boolean };
  nodes: { [node: string]: Parcel };
  weights: { [name: string]: PackedWeight };
  spelt: boolean;
  lenses: {
    reach: { [site: string]: Parcel };
    logit_lens?: { nodes: string[]; ids: Parcel; probabilities: Parcel; refused?: string };
    rollout?: { [stack: string]: Parcel };
    attribution?: {
      parts: [label: string, node: string][];
      rows?: { [place: string]: [values: number[], bias: number, total: number] };
      refused?: string;
    };
  };
  answers: { ids: Parcel; logits: Parcel; others: { counts: number[]; logits: Parcel }; vocabulary: number } | null;
  without: Without | null;
  pieces: { [id: string]: string };
}

/** The runs without each head: what each does to the answer, and perhaps the answers themselves. */
interface Without {
  rows: number[];
  effect: { [site: string]: Parcel };
  ids?: { [site: string]: Parcel };
  logits?: { [site: string]: Parcel };
  sums?: { [site: string]: Parcel };
}

/** Numbers of a file. `stored`: the same in another order. */
interface FileTensor {
  shape: number[];
  values: Float32Array | Int32Array;
  stored?: { values: Float32Array | Int32Array; strides: number[] };
}
interface NamedTensor extends FileTensor {
  name: string;
}

/** A node with its formula, the names in it, and where it goes step by step, the nodes it goes along with. */
interface FileNode extends GraphNode {
  formula: Tree;
  uses: Set<string>;
  together: FileNode[];
}
type FileGraph = Map<string, FileNode>;

/** What an edit makes of a node's values. */
type NodeChange = (
  values: Float32Array,
  shape: number[],
  numbers: (name: string) => Promise<NamedTensor>,
) => Float32Array | Promise<Float32Array>;

/** A run of a file (run.js). */
interface FileRun {
  id: string;
  edits: Edits;
  base: FileRun | null;
  changes: Map<string, NodeChange[]>;
  texts: { [name: string]: number[] | null };
  numbers(name: string): Promise<NamedTensor>;
  operands(names: Iterable<string>): Promise<Map<string, NamedTensor>>;
  own(name: string): boolean;
  has(name: string): boolean;
}

/** How a formula's names are read. */
type Read = (name: string) => FileTensor;

/** The logits of a position by rank; of a large vocabulary, groups of the others. */
interface Ranked {
  known: { id: number; logit: number }[];
  others: { count: number; logit: number }[];
  vocabulary: number;
}
interface Answers {
  at(run: FileRun, row: number): Promise<Ranked>;
}

// A tokenizer that the browser runs, as browser_tokenizer.py writes it.

/** Parts of a regular expression; every second one is the name of a character class. */
type TokenizerPattern = string[];

interface AddedToken {
  id: number;
  text: string; // as a text spells it (the normalized text, if `normalized`) and as it is decoded
  special: boolean; // a control token
  skipped: boolean; // when special tokens are left out of a decoded text
  normalized: boolean;
  single_word: boolean;
  lstrip: boolean;
  rstrip: boolean;
}

interface ModelData {
  type: string;
  tokens: (string | null)[]; // by id
  unknown: number | null;
  hidden: number[]; // ids of control tokens that a text would spell like any word
}
interface BPEData extends ModelData {
  merges: number[]; // left, right, both; left, right, both; …
  fuse_unknown: boolean;
  bytes: (number | null)[] | null; // ids of the tokens of single bytes
  whole_words: boolean; // a word that is a token is not made by merges
  prefix: string; // of tokens within a word
  suffix: string; // of tokens at its end
}
interface WordPieceData extends ModelData {
  prefix: string;
  longest: number; // characters of a word that is not unknown
}
interface UnigramData extends ModelData {
  scores: number[];
  bytes: (number | null)[] | null;
}

interface TokenizerData {
  version: number;
  where: string; // its name in sentences
  classes: { [name: string]: string };
  added: AddedToken[];
  normalizer: { type: string }[];
  pre_tokenizer: { type: string }[];
  post_processor: { type: string; after?: number[] }[];
  decoder: { type: string }[];
  model: ModelData;
  clean_up: [old: string, instead: string][];
  readable: string; // how tokens are shown: "ByteLevel", "ByteFallback" or "Metaspace"
}

/** Offsets are in characters (code points) of the text; [0, 0] for tokens that were put around it. */
interface TextEncoding {
  ids: number[];
  tokens: string[];
  offsets: [from: number, to: number][];
}

interface BrowserTokenizer {
  /** control: whether the text may spell control tokens; most: tokens that fit. */
  encode(text: string, settings?: { special?: boolean; control?: boolean; most?: number }): TextEncoding;
  decode(ids: number[], settings?: { skipSpecial?: boolean }): string;
  /** Each token as people read it. */
  pieces(ids: number[]): string[];
  after: number; // tokens that are put behind every text
}
