// The list of requests, which keeps the keyboard's focus itself, and the one that is shown in full.

import { bars, count, describe, draw, keep, make, mark, time, write } from "./dom.js";

const list = document.getElementById("requests");
const shown = document.getElementById("request");

/** By key, in the list's order. */
let requests = new Map();
/** Keys: where the keyboard is, and what is shown. */
let active = null;
let chosen = null;

// A router that has restarted counts from the beginning.
const key = (request) => `${request.number} ${request.id}`;

/** Brings list and request up to date. */
export function showRequests(all) {
  const newest = [...all].sort((a, b) => b.number - a.number);
  requests = new Map(newest.map((request) => [key(request), request]));
  keep(list, newest, key, create, update);
  document.getElementById("no-requests").hidden = newest.length > 0;
  if (active !== null && !requests.has(active)) active = null;
  point();
  // One that is not listed any more stays as it was last.
  if (requests.has(chosen)) detail(requests.get(chosen));
}

function create(request) {
  const option = make(
    "div",
    { role: "option", id: `request-${request.number}` },
    make("span", { class: "name" }, request.id),
    make("span", { class: "state" }),
    make("span", { class: "tokens" }),
    make("span", { class: "total" }),
    bars(),
  );
  option.dataset.key = key(request);
  return option;
}

function update(option, request) {
  const [, state, tokens, total, drawing] = option.children;
  write(state, request.state);
  mark(state, "class", `state ${kind(request)}`);
  write(tokens, `${count(request.prompt_tokens)} → ${count(request.output_tokens)} tokens`);
  write(total, time(request.total_ms));
  mark(option, "aria-label", `${request.id}: ${request.state}, ${time(request.total_ms)}, ${request.prompt_tokens} prompt tokens, ${request.output_tokens} drawn`);
  // The waterfall of one that has ended is final.
  if (!request.ended || option.dataset.drawn !== "whole") draw(drawing, request.waterfall, request.total_ms);
  option.dataset.drawn = request.ended ? "whole" : "part";
}

function kind(request) {
  if (!request.ended) return "running";
  return { finished: "finished", cancelled: "left" }[request.state] ?? "failed";
}

function detail(request) {
  shown.hidden = false;
  write(document.getElementById("request-title"), `Request ${request.id}`);
  describe(shown.querySelector("dl"), [
    ["state", request.state],
    ["total", time(request.total_ms)],
    ["first token", request.first_token_ms === null ? "-" : time(request.first_token_ms)],
    ["prompt tokens", count(request.prompt_tokens)],
    ["of them cached", request.cached_tokens === null ? "-" : count(request.cached_tokens)],
    ["output tokens", count(request.output_tokens)],
    ["prefill worker", request.prefill_worker ?? "-"],
    ["decode worker", request.decode_worker ?? "-"],
    ["migrations", count(request.migrations)],
  ]);
  const row = ({ stage }) => make("tr", {}, make("th", { scope: "row" }, stage), make("td"), make("td"), make("td", {}, bars()));
  keep(shown.querySelector("tbody"), request.waterfall, ({ stage }) => stage, row, (row, stage) => {
    write(row.cells[1], time(stage.start_ms));
    write(row.cells[2], time(stage.ms));
    draw(row.cells[3].firstChild, [stage], request.total_ms);
  });
}

/** Tells where the keyboard is, and which request is shown. */
function point() {
  for (const option of list.children) {
    option.classList.toggle("active", option.dataset.key === active);
    mark(option, "aria-selected", option.dataset.key === chosen);
  }
  mark(list, "aria-activedescendant", list.querySelector(".active")?.id ?? null);
}

function choose(request) {
  chosen = request;
  if (chosen === null) shown.hidden = true;
  else detail(requests.get(chosen));
  point();
}

function move(to) {
  const keys = [...requests.keys()];
  if (keys.length === 0) return;
  const index = { first: 0, last: keys.length - 1 }[to] ?? keys.indexOf(active) + to;
  active = keys[Math.min(Math.max(index, 0), keys.length - 1)];
  point();
  list.querySelector(".active").scrollIntoView({ block: "nearest" });
}

const KEYS = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  Home: () => move("first"),
  End: () => move("last"),
  Enter: () => active !== null && choose(active),
  " ": () => active !== null && choose(active),
  Escape: () => choose(null),
};

list.addEventListener("keydown", (event) => {
  const action = KEYS[event.key];
  if (!action || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  action();
});

list.addEventListener("focus", () => {
  // Not under a pointer that is about to choose.
  if (active === null && list.matches(":focus-visible")) move("first");
});

list.addEventListener("click", (event) => {
  const option = event.target.closest("[role=option]");
  if (!option) return;
  active = option.dataset.key;
  choose(active);
});
