// The table of holders. A row lives as long as its holder; only what has changed is touched.

import { $, count, duration, h, stillness, text } from './dom.js';
import { askRelease } from './release.js';

const ENDING_MS = 3000;

const rows = new Map();

/** What is asked for. */
export const wish = { q: '', kind: 'all', sort: 'newest', page: 0 };

/** The wish, for an address. */
export const query = () => new URLSearchParams(Object.entries(wish).map(([name, value]) => [name, String(value)])).toString();

/** Tells `changed` when something else is asked for. */
export function filters(changed) {
  let typing = 0;
  const ask = (part) => {
    Object.assign(wish, { page: 0 }, part);
    changed();
  };
  $('search').addEventListener('input', (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => ask({ q: event.target.value }), 200);
  });
  $('kind').addEventListener('change', (event) => ask({ kind: event.target.value }));
  $('sort').addEventListener('change', (event) => ask({ sort: event.target.value }));
  $('previous').addEventListener('click', () => ask({ page: Math.max(0, wish.page - 1) }));
  $('next').addEventListener('click', () => ask({ page: wish.page + 1 }));
  $('filters').addEventListener('submit', (event) => event.preventDefault());
}

/** Shows a sample. */
export function show(state) {
  const now = performance.now();
  const seen = new Set(state.rows.map((holder) => holder.id));
  for (const [id, row] of rows) {
    if (!seen.has(id)) {
      rows.delete(id);
      row.element.remove();
    }
  }
  let before = null;
  for (const holder of state.rows) {
    let row = rows.get(holder.id);
    if (!row) {
      row = make(holder);
      rows.set(holder.id, row);
      if (!stillness.matches) row.element.animate([{ opacity: 0.4 }, { opacity: 1 }], 160);
    }
    update(row, holder, state, now);
    const next = before ? before.nextElementSibling : $('rows').firstElementChild;
    if (next !== row.element) $('rows').insertBefore(row.element, next);
    before = row.element;
  }
  about(state);
}

function make(holder) {
  const waiters = h('span', { class: 'waiters' });
  const fence = h('span');
  const since = h('td', { class: 'since' });
  const fill = h('div', { class: 'fill' });
  const leftText = h('span');
  const left = h('div', { class: 'left' }, h('div', { class: 'bar', 'aria-hidden': true }, fill), leftText);
  const known = holder.host !== null;
  const who = known ? `${holder.host}:${holder.pid}` : 'an unknown client';
  const details = known
    ? [holder.label, holder.task === null ? null : `task ${holder.task}`].filter(Boolean).join(' · ')
    : 'its value is not Clinch’s';
  const row = { holder, waiters, fence, since, fill, left, leftText, ends: null, animation: null };
  row.button = h('button', { type: 'button', 'aria-label': `Release ${holder.key}, held by ${who}`, click: () => askRelease(row.holder) }, 'Release');
  row.element = h('tr', { 'data-key': holder.key },
    h('td', {},
      h('div', { class: 'key' }, h('span', { class: 'kind', 'data-kind': holder.kind }, holder.kind), h('code', { title: holder.key }, holder.key)),
      h('div', { class: 'sub' }, waiters, fence)),
    h('td', {}, h('div', { class: 'who', title: who }, who), h('div', { class: 'sub', title: details }, details)),
    since,
    h('td', {}, left),
    h('td', {}, row.button));
  return row;
}

function update(row, holder, state, now) {
  row.holder = holder;
  text(row.waiters, holder.waiters > 0 ? `${count(holder.waiters)} waiting${holder.fence ? ' · ' : ''}` : '');
  text(row.fence, holder.fence ? `fence ${holder.fence}` : '');
  text(row.since, holder.since === null ? '' : duration(Math.max(0, state.at - holder.since)));
  if (holder.left_ms === null) {
    row.left.dataset.forEver = '';
    text(row.leftText, 'without expiry');
    return;
  }
  const ends = now + holder.left_ms;
  // It was renewed, or it is new: the bar begins again from there, and runs by itself.
  if (row.ends === null || Math.abs(ends - row.ends) > 250 || stillness.matches) {
    row.ends = ends;
    const share = Math.min(1, holder.left_ms / Math.max(1, holder.full_ms));
    row.animation?.cancel();
    row.fill.style.transform = `scaleX(${share})`;
    if (!stillness.matches) {
      const frames = [{ transform: `scaleX(${share})` }, { transform: 'scaleX(0)' }];
      row.animation = row.fill.animate(frames, { duration: Math.max(1, holder.left_ms), fill: 'forwards' });
    }
  }
  tick(row, now);
}

function tick(row, now) {
  if (row.ends === null) return;
  const left = Math.max(0, row.ends - now);
  text(row.leftText, `${duration(left)} left`);
  if (left < ENDING_MS) row.left.dataset.ending = '';
  else delete row.left.dataset.ending;
}

// The numbers go on between two samples.
setInterval(() => {
  if (document.hidden) return;
  const now = performance.now();
  for (const row of rows.values()) tick(row, now);
}, 250);

/** How much there is, and how much of it is not shown. */
function about(state) {
  const filtered = wish.q.trim() !== '' || wish.kind !== 'all';
  const all = `${state.complete ? '' : 'at least '}${count(state.held)}`;
  $('empty').hidden = state.rows.length > 0;
  const unknown = state.engine.up === false;
  const nobody = filtered ? 'Nobody like that holds anything.' : 'Nobody holds anything.';
  text($('empty'), unknown ? 'The engine does not answer, so it is not known who holds what.' : nobody);
  text($('holders-count'), unknown ? '' : filtered ? `${count(state.matching)} of ${all}` : state.held ? all : '');
  $('table').hidden = state.rows.length === 0;
  const notes = [];
  const more = state.held - state.kept;
  if (more > 0) notes.push(`${count(more)} more are held; the first ${count(state.kept)} that the engine listed can be shown and searched.`);
  if (!state.complete && state.engine.up) notes.push('There is more than could be listed in time.');
  text($('more'), notes.join(' '));
  if (state.complete) wish.page = state.page;
  $('pager').hidden = state.pages < 2;
  text($('page'), `Page ${count(state.page + 1)} of ${count(state.pages)}`);
  $('previous').disabled = state.page === 0;
  $('next').disabled = state.page + 1 >= state.pages;
}
