// Making and keeping elements. What has not changed is not touched, so focus, selection and scroll positions stay.

const SVG = "http://www.w3.org/2000/svg";

/** An element with these attributes and children (elements or texts). */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Writes an element's text. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Writes an attribute; `null` takes it away. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Makes `parent`'s children those of `items`, in their order: one for each `key(item)`, made by `create(item)` when it is new and
 * brought up to date by `update(child, item)`. Children that stay are not moved as long as their order stays.
 */
export function keep(parent, items, key, create, update) {
  const before = parent.kept ?? new Map();
  const after = new Map();
  for (const item of items) after.set(key(item), before.get(key(item)) ?? create(item));
  for (const [name, child] of before) if (after.get(name) !== child) child.remove();
  let place = parent.firstChild;
  for (const child of after.values()) {
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  for (const item of items) update(after.get(key(item)), item);
  parent.kept = after;
}

/** Fills a `dl` with pairs of a name and a text. */
export function describe(list, pairs) {
  const create = ([name]) => make("div", {}, make("dt", {}, name), make("dd"));
  keep(list, pairs, ([name]) => name, create, (pair, [, text]) => write(pair.lastChild, text));
}

/** An empty drawing of a waterfall, or of one stage of it. What it shows is said in words beside it. */
export function bars() {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("aria-hidden", "true");
  drawing.setAttribute("viewBox", "0 0 1000 10");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.append(bar("track", 0, 1000));
  return drawing;
}

/** Draws stages of a request that takes `total` milliseconds. */
export function draw(drawing, stages, total) {
  const scale = 1000 / Math.max(total, 0.1);
  // One that took no time can still be seen.
  const rectangles = stages.map(({ stage, start_ms, ms }) => bar(stage, start_ms * scale, Math.max(ms * scale, 3)));
  drawing.replaceChildren(drawing.firstChild, ...rectangles);
}

function bar(kind, start, width) {
  const rectangle = document.createElementNS(SVG, "rect");
  const attributes = { class: kind, x: Math.min(start, 997), y: 0, width, height: 10 };
  for (const [name, value] of Object.entries(attributes)) rectangle.setAttribute(name, value);
  return rectangle;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count, as people read it. */
export const count = (number) => whole.format(number);

/** Milliseconds, as people read them. */
export function time(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 10_000) return `${whole.format(ms)} ms`;
  if (ms < 600_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${whole.format(ms / 60_000)} min`;
}
