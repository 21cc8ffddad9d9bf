// The token, and ending a lease by force. The token is kept for this tab only, and goes nowhere but into a header.

import { $, duration, h, text, toast } from './dom.js';

const KEY = 'clinch-token';

let kept = null;
try {
  kept = sessionStorage.getItem(KEY);
} catch {
  // Storage is off: it is kept in memory alone.
}

export const token = {
  has: () => kept !== null,
  header: () => (kept === null ? {} : { authorization: `Bearer ${kept}` }),
  set(value) {
    kept = value;
    try {
      if (value === null) sessionStorage.removeItem(KEY);
      else sessionStorage.setItem(KEY, value);
    } catch {
      // As above.
    }
    text($('token-text'), kept === null ? 'Token' : 'Token set');
  },
};

let chosen = null;

/** Asks whether this holder's lease is to be ended. */
export function askRelease(holder) {
  chosen = holder;
  const who = holder.host === null ? 'an unknown client' : `${holder.host}:${holder.pid}${holder.label ? ` (${holder.label})` : ''}`;
  const facts = [['Key', holder.key], ['Kind', holder.kind], ['Holder', who]];
  if (holder.left_ms !== null) facts.push(['Time left', duration(holder.left_ms)]);
  $('release-facts').replaceChildren(...facts.flatMap(([name, what]) => [h('dt', {}, name), h('dd', {}, what)]));
  $('release-token-field').hidden = token.has();
  $('release-token').value = '';
  problem('release-problem', null);
  $('release-go').disabled = false;
  $('release-dialog').showModal();
  (token.has() ? $('release-cancel') : $('release-token')).focus();
}

function problem(id, what) {
  $(id).hidden = what === null;
  text($(id), what ?? '');
}

async function release(holder) {
  const typed = $('release-token').value.trim();
  if (!token.has() && typed !== '') token.set(typed);
  const response = await fetch('/console/release', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...token.header() },
    body: JSON.stringify({ id: holder.id }),
  });
  if (response.ok) return null;
  if (response.status === 401) {
    token.set(null);
    $('release-token-field').hidden = false;
    $('release-token').focus();
  }
  const body = await response.json().catch(() => ({}));
  return body.detail ?? `The server answered ${response.status}.`;
}

/** Wires the dialogs. `changed` is told when there is another token. */
export function dialogs(changed) {
  token.set(kept);

  $('release-form').addEventListener('submit', async (event) => {
    event.preventDefault();
    const holder = chosen;
    $('release-go').disabled = true;
    problem('release-problem', null);
    const what = await release(holder).catch(() => 'The server cannot be reached; whether the lease was ended is not known.');
    $('release-go').disabled = false;
    if (what === null) {
      $('release-dialog').close();
      toast(`Ended: ${holder.key}`);
    } else {
      problem('release-problem', what);
    }
  });
  $('release-cancel').addEventListener('click', () => $('release-dialog').close());

  $('token-button').addEventListener('click', () => askToken());
  $('token-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const typed = $('token-input').value.trim();
    if (typed === '') return;
    token.set(typed);
    $('token-dialog').close();
    changed();
  });
  $('token-cancel').addEventListener('click', () => $('token-dialog').close());
  $('token-forget').addEventListener('click', () => {
    token.set(null);
    $('token-dialog').close();
    changed();
  });
}

/** Asks for the token; `why` if it is needed to go on. */
export function askToken(why) {
  if ($('token-dialog').open || $('release-dialog').open) return;
  text($('token-why'), why ?? 'It is needed to end a lease by force.');
  $('token-input').value = '';
  $('token-forget').hidden = !token.has();
  problem('token-problem', null);
  $('token-dialog').showModal();
  $('token-input').focus();
}
