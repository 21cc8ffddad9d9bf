// The playground: fires requests at the guards and shows what became of each.

import { $, count, h, text } from './dom.js';
import { token } from './release.js';

const TARGETS = {
  orders: {
    name: 'Duplicate', fires: 100, path: '/demo/orders',
    what: 'The same form, sent again and again. While the first is being taken, the others are refused with the time left. Their timestamps differ, and do not count.',
    code: '#[clinch::prevent_duplicate(\n    interval = "5s",\n    exclude_params = ["timestamp"],\n)]\nasync fn create_order(Json(order): Json<Order>)',
    body: () => ({ item: 7, form, timestamp: Date.now() }),
  },
  pay: {
    name: 'Lock', fires: 100, path: '/demo/orders/42/pay',
    what: 'Only one at a time may pay order 42. The others do not wait: 409 Conflict. Watch the lock come and go in the table.',
    code: '#[clinch::lock(\n    key = "order:{id}",\n    ttl_ms = 15_000,\n)]\nasync fn pay(Path(id): Path<String>)',
    body: () => null,
  },
  seats: {
    name: 'Waiting', fires: 10, path: '/demo/seats/7',
    what: 'The same lock, but here the others wait for their turn, for ten seconds at most. They are let in one after the other, first come first served.',
    code: '#[clinch::lock(\n    key = "seat:{id}",\n    ttl_ms = 15_000,\n    wait_ms = 10_000,\n)]\nasync fn hand_out(Path(id): Path<String>)',
    body: () => null,
  },
  export: {
    name: 'Gate', fires: 100, path: '/demo/export',
    what: 'One gate for everybody: a hundred users ask for a hundred different exports, and one of them runs.',
    code: 'web.duplicate(DuplicatePolicy::new()\n    .include_user(false)\n    .include_params(false))?',
    body: () => ({ format: 'csv' }),
  },
  reports: {
    name: 'Limit', fires: 100, path: '/demo/reports',
    what: 'At most two reports at a time, in the whole fleet. The others are told to come back: 503.',
    code: 'web.limit(LimitPolicy::new("reports", 2))?',
    body: () => ({}),
  },
  payments: {
    name: 'Idempotency', fires: 100, path: '/demo/payments',
    what: 'A payment with an Idempotency-Key is carried out once. While it runs, others with its key get 409; fire again, and all get the stored answer of the one payment.',
    code: 'web.idempotency(IdempotencyPolicy::new()\n    .required(true)\n    .exclude_params(["work_ms"]))?',
    body: () => ({ amount: 100, form }),
  },
};

let target = 'orders';
let firing = false;
/** The number of the form: what is sent again, one or a hundred times, is the same. */
let form = newNumber();

function newNumber() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

const key = () => `"form-${form}"`;

/** Shows the playground and wires it. */
export function playground() {
  if (!$('playground').hidden) return;
  $('playground').hidden = false;
  $('layout').classList.add('with-playground');
  const choices = Object.entries(TARGETS).map(([id, { name }]) => h('label', { class: 'target' },
    h('input', { type: 'radio', name: 'target', value: id, checked: id === target, change: () => choose(id) }), h('span', {}, name)));
  $('targets').append(...choices);
  $('fire').addEventListener('click', fire);
  $('once').addEventListener('click', once);
  $('new-key').addEventListener('click', () => {
    form = newNumber();
    choose(target);
  });
  choose(target);
}

function choose(id) {
  target = id;
  const { what, code, fires, path, body } = TARGETS[id];
  text($('what'), what);
  text($('code'), code);
  text($('fire'), `Fire ${fires} at once`);
  const keyed = id === 'payments';
  $('form').hidden = !keyed;
  text($('form-key'), `Idempotency-Key: ${key()}`);
  const header = keyed ? ` -H 'Idempotency-Key: ${key()}'` : '';
  text($('curl'), `seq 100 | xargs -P 100 -I{} curl -s -o /dev/null -w '%{http_code}\\n' -H 'Content-Type: application/json'${header} -d '${JSON.stringify(body())}' ${location.origin}${path} | sort | uniq -c`);
  cells(fires);
  $('tally').replaceChildren();
  text($('storm-note'), '');
  $('answer').hidden = true;
}

function cells(n) {
  $('cells').replaceChildren(...Array.from({ length: n }, () => h('div', { class: 'cell' })));
  $('cells').setAttribute('aria-label', 'Nothing was fired yet');
}

const work = () => Number($('work').value);

async function fire() {
  if (firing) return;
  firing = true;
  $('fire').disabled = true;
  $('new-key').disabled = true;
  $('answer').hidden = true;
  const { fires } = TARGETS[target];
  cells(fires);
  for (const cell of $('cells').children) cell.dataset.is = 'under-way';
  const seen = { accepted: 0, replayed: 0, refused: 0, failed: 0, statuses: new Map(), numbers: new Set() };
  tally(seen);
  text($('storm-note'), '');
  // Ten that wait for each other must all be done within the time that they wait.
  const each = target === 'seats' ? Math.min(work(), 900) : work();
  try {
    const response = await fetch(`/demo/storm?target=${target}&count=${fires}&work_ms=${each}&number=${form}`, { method: 'POST', headers: token.header() });
    if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail ?? `The server answered ${response.status}.`);
    for await (const answer of linesOf(response.body)) note(answer, seen);
  } catch (error) {
    text($('storm-note'), error.message);
  }
  for (const cell of $('cells').children) {
    if (cell.dataset.is === 'under-way') {
      cell.dataset.is = 'failed';
      seen.failed += 1;
    }
  }
  tally(seen);
  const replayed = seen.replayed ? `${seen.replayed} replayed, ` : '';
  $('cells').setAttribute('aria-label', `${seen.accepted} accepted, ${replayed}${seen.refused} refused, ${seen.failed} failed`);
  firing = false;
  $('fire').disabled = false;
  $('new-key').disabled = false;
}

/** One line of what a storm tells. */
function note(answer, seen) {
  if (answer.event === 'done') {
    const statuses = [...seen.statuses].sort().map(([status, n]) => `${count(n)} × ${status}`).join(', ');
    const once = target === 'payments' && seen.numbers.size === 1 ? ` All of them are about payment ${[...seen.numbers][0]}.` : '';
    // One at a time is what these guards promise, not one for ever.
    const late = ['orders', 'pay', 'export'].includes(target) && seen.accepted > 1
      ? ' The first was done before the last had come: this machine is busy. Let each take longer.' : '';
    text($('storm-note'), `${statuses}. Each had a connection of its own, and all were open before the first was sent.${once}${late}`);
    return;
  }
  const cell = $('cells').children[answer.n];
  if (answer.event === 'failed') {
    seen.failed += 1;
    cell.dataset.is = 'failed';
    cell.title = answer.problem;
  } else {
    const is = answer.replayed ? 'replayed' : answer.status < 300 ? 'accepted' : [409, 429, 503].includes(answer.status) ? 'refused' : 'failed';
    seen[is] += 1;
    seen.statuses.set(answer.status, (seen.statuses.get(answer.status) ?? 0) + 1);
    if (answer.status < 300 && answer.number !== null) seen.numbers.add(answer.number);
    cell.dataset.is = is;
    cell.title = `${answer.status} after ${answer.ms} ms${answer.replayed ? ', as it was answered before' : ''}`;
  }
  tally(seen);
}

function tally(seen) {
  const part = (name) => h('span', { class: name }, h('b', {}, count(seen[name])), name);
  const parts = ['accepted', 'replayed', 'refused', 'failed'].filter((name) => seen[name] || name === 'accepted' || name === 'refused');
  $('tally').replaceChildren(...parts.map(part));
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const complete = rest.split('\n');
    rest = complete.pop();
    for (const line of complete) if (line) yield JSON.parse(line);
  }
}

/** Sends one request straight from the page, and shows the answer as it came. */
async function once() {
  const { path, body } = TARGETS[target];
  const headers = { 'content-type': 'application/json', ...token.header() };
  if (target === 'payments') headers['idempotency-key'] = key();
  const answer = $('answer');
  answer.hidden = false;
  text(answer, 'sent, waiting for the answer …');
  try {
    const began = performance.now();
    const response = await fetch(`${path}?work_ms=${work()}`, { method: 'POST', headers, body: JSON.stringify(body()) });
    const received = await response.text();
    const after = Math.round(performance.now() - began);
    const retry = response.headers.get('retry-after');
    const replayed = response.headers.get('idempotency-replayed');
    const head = [
      `${response.status} ${response.statusText} after ${after} ms`,
      ...(retry ? [`Retry-After: ${retry}`] : []),
      ...(replayed ? [`Idempotency-Replayed: ${replayed}`] : []),
    ];
    text(answer, `${head.join('\n')}\n\n${pretty(received)}`);
  } catch (error) {
    text(answer, `no answer: ${error.message}`);
  }
}

function pretty(received) {
  try {
    return JSON.stringify(JSON.parse(received), null, 2);
  } catch {
    return received;
  }
}
