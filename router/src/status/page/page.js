// Follows the router: every message is a whole snapshot, so nothing is missed by a connection that broke.

import { mark, write } from "./dom.js";
import { showRequests } from "./requests.js";
import { showRouter, showTransfers, showWorkers } from "./workers.js";

// Snapshots come twice a second; after so long without one the connection is taken for dead.
const SILENCE_MS = 5000;
const RETRY_MS = 2000;

const connection = document.getElementById("connection");
let source = null;
let silence = 0;

function show(snapshot) {
  showRouter(snapshot.router);
  showWorkers(snapshot.prefill, snapshot.decode);
  showTransfers(snapshot.transfers);
  showRequests(snapshot.requests);
}

function tell(live) {
  write(connection, live ? "live" : "disconnected, retrying");
  mark(connection, "class", live ? "live" : "lost");
  document.body.classList.toggle("lost-now", !live);
}

function open() {
  source = new EventSource("status/events");
  source.addEventListener("message", (event) => {
    listen();
    show(JSON.parse(event.data));
    tell(true);
  });
  source.addEventListener("error", retry);
  listen();
}

/** Waits for the next message. */
function listen() {
  clearTimeout(silence);
  silence = setTimeout(retry, SILENCE_MS);
}

/** Connects again, a little later. A browser does so by itself after some failures only. */
function retry() {
  tell(false);
  source.close();
  clearTimeout(silence);
  silence = setTimeout(open, RETRY_MS);
}

// Nobody looks at a hidden page, so the router need not tell it anything.
document.addEventListener("visibilitychange", () => {
  source.close();
  clearTimeout(silence);
  if (!document.hidden) open();
});

open();
