// The router, its workers, and what is on the way between them.

import { count, describe, keep, make, mark, time, write } from "./dom.js";

/** The router's own figures. */
export function showRouter(router) {
  write(document.getElementById("model"), router.model);
  const ended = Object.entries(router.outcomes).map(([outcome, requests]) => [`ended: ${outcome}`, count(requests)]);
  describe(document.getElementById("router"), [
    ["in flight", count(router.in_flight)],
    ["waiting for a permit", count(router.waiting)],
    ["not on workers yet", `${count(router.unplaced)} (${count(router.unplaced_tokens)} tokens)`],
    ["migrations", count(router.migrations)],
    ...ended,
    ["up", up(router.uptime_seconds)],
    ["version", router.version],
    ["members", router.trouble || (router.members_followed ? "followed" : "last known")],
  ]);
}

/** Both tables of workers. */
export function showWorkers(prefill, decode) {
  table("prefill", prefill, ["requests", "queue", "speed", "pages", "slots", "step", "checkpoints"]);
  table("decode", decode, ["requests", "speed", "pages", "slots", "step"]);
}

/** What has left its prefill worker, or soon will, and is not committed. */
export function showTransfers(transfers) {
  write(document.getElementById("transfer-count"), count(transfers.length));
  const place = document.getElementById("transfers");
  place.hidden = transfers.length === 0;
  const create = ({ request }) => make("tr", {}, make("th", { scope: "row" }, request), make("td"), make("td"), make("td"));
  keep(place.querySelector("tbody"), transfers, ({ number, request }) => `${number} ${request}`, create, (row, transfer) => {
    const texts = [transfer.prefill_worker, transfer.decode_worker, time(transfer.age_ms)];
    texts.forEach((text, index) => write(row.cells[index + 1], text));
  });
}

const CELLS = {
  requests: (cell, worker) => write(cell, `${count(worker.running)} running, ${count(worker.waiting)} waiting`),
  queue: (cell, worker) => write(cell, `${count(worker.queued_tokens)} tokens`),
  speed: (cell, worker) => write(cell, worker.tokens_per_second > 0 ? `${count(worker.tokens_per_second)} tokens/s` : "-"),
  pages: (cell, worker) => level(cell, "pages", worker.pages),
  slots: (cell, worker) => level(cell, "slots", worker.slots),
  step: (cell, worker) => write(cell, worker.step_ms > 0 ? time(worker.step_ms) : "-"),
  checkpoints: (cell, worker) => write(cell, worker.checkpoints === null ? "no cache" : count(worker.checkpoints)),
};

function table(id, workers, columns) {
  const body = document.querySelector(`#${id} tbody`);
  const rows = workers.length > 0 ? workers : [null];
  const create = (worker) => {
    if (worker === null) return make("tr", {}, make("td", { colspan: columns.length + 1 }, `no ${id} worker is a member`));
    const head = make("th", { scope: "row" }, worker.name, " ", make("span", { class: "note" }), make("small"));
    return make("tr", {}, head, ...columns.map(() => make("td")));
  };
  keep(body, rows, (worker) => worker?.name, create, (row, worker) => {
    if (worker === null) return;
    write(row.querySelector(".note"), worker.draining ? "draining" : "");
    write(row.querySelector("small"), worker.address);
    columns.forEach((column, index) => CELLS[column](row.cells[index + 1], worker));
  });
}

function level(cell, what, { used, total }) {
  if (cell.childElementCount === 0) cell.append(make("meter", { min: 0, "aria-label": `${what} used` }), make("span"));
  const [meter, text] = cell.children;
  // First the end of the scale: a value beyond it would be cut.
  mark(meter, "max", Math.max(total, 1));
  mark(meter, "high", total * 0.9);
  mark(meter, "optimum", 0);
  mark(meter, "value", used);
  mark(meter, "aria-valuetext", `${used} of ${total}`);
  write(text, `${count(used)} of ${count(total)}`);
}

function up(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}
