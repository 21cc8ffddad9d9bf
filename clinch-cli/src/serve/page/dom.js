// Small helpers. Text only ever becomes text: nothing here makes elements out of strings.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/** The same for a drawing. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
}

/** Changes a text only if it differs: what has not changed is not read aloud again. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

const whole = new Intl.NumberFormat('en');

export const count = (n) => whole.format(n);

/** A time in milliseconds as a person would say it. */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms / 10) * 10)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A short time in microseconds: a number and its unit. */
export function short(us) {
  if (us === 0) return ['0', 'µs'];
  if (us < 1000) return [us < 10 ? us.toFixed(1) : String(Math.round(us)), 'µs'];
  if (us < 1e6) return [us < 1e4 ? (us / 1000).toFixed(2) : (us / 1000).toFixed(us < 1e5 ? 1 : 0), 'ms'];
  return [(us / 1e6).toFixed(2), 's'];
}

/** A rate: a number that is short enough for a tile. */
export function rate(n) {
  if (n === 0) return '0';
  if (n < 10) return n.toFixed(1);
  if (n < 10_000) return whole.format(Math.round(n));
  return `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)}k`;
}

/** A value with its unit. */
export function value(element, number, unit) {
  const key = `${number} ${unit}`;
  if (element.dataset.shown === key) return;
  element.dataset.shown = key;
  element.replaceChildren(number, ...(unit ? [h('span', { class: 'unit' }, unit)] : []));
}

/** Says something for a few seconds. */
export function toast(message) {
  const toasts = $('toasts');
  const shown = h('p', { class: 'toast' }, message);
  toasts.append(shown);
  while (toasts.childElementCount > 3) toasts.firstElementChild.remove();
  setTimeout(() => shown.remove(), 7000);
}

export const stillness = matchMedia('(prefers-reduced-motion: reduce)');
