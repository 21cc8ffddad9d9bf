// The console: takes what the stream brings and hands it to those who show it.

import { $, count, rate, short, text, value } from './dom.js';
import { POINTS, draw, legend, spark } from './charts.js';
import { filters, query, show } from './holders.js';
import { askToken, dialogs } from './release.js';
import { playground } from './playground.js';
import { watch } from './stream.js';

const history = [];
const samples = [];
let hold = null;

/** Puts one more on a list that stays short. */
function push(list, entry) {
  list.push(entry);
  if (list.length > POINTS) list.splice(0, list.length - POINTS);
}

const LIVE = { connecting: 'connecting', live: 'live', lost: 'connection lost, trying again', token: 'needs the token', full: 'too many watch, trying again', paused: 'paused' };

function status(state) {
  $('live').dataset.state = state === 'full' || state === 'token' ? 'lost' : state;
  text($('live-text'), LIVE[state]);
  $('layout').classList.toggle('stale', state !== 'live');
  if (state === 'token') askToken('This server shows what it sees only to those who have its token.');
}

function engine({ up, degraded, problem, name, latency_us }) {
  const state = up === null ? 'unknown' : !up ? 'down' : degraded ? 'degraded' : 'up';
  $('engine').dataset.state = state;
  // What the address says already is not said twice.
  const told = !name || $('engine-name').textContent.startsWith(name);
  const words = { unknown: '', up: told ? 'up' : name, degraded: 'degraded', down: 'down' };
  text($('engine-detail'), words[state]);
  const trouble = state === 'down' ? `The engine does not answer: ${problem}` : degraded;
  $('banner').hidden = !trouble;
  text($('banner'), trouble ?? '');
  if (latency_us === null) value($('latency'), '–', '');
  else value($('latency'), ...short(latency_us));
}

const stream = watch(query, {
  status,
  hello(greeting) {
    text($('engine-name'), greeting.engine);
    text($('version'), `Clinch ${greeting.version}`);
    if (greeting.playground) playground();
    history.splice(0, history.length, ...greeting.history);
    hold = greeting.hold ?? hold;
    redraw();
  },
  state(state) {
    engine(state.engine);
    const held = state.engine.up === false ? '–' : `${count(state.held)}${state.complete ? '' : '+'}`;
    value($('held'), held, '');
    value($('waiting'), count(state.waiting), '');
    push(samples, { held: state.held, waiting: state.waiting, latency: state.engine.latency_us ?? 0 });
    for (const name of ['held', 'waiting', 'latency']) sparkOf(name, samples.map((sample) => sample[name]));
    show(state);
  },
  pulse(pulse) {
    push(history, pulse.last);
    hold = pulse.hold;
    redraw();
  },
});

const sparkOf = (name, values) => spark(document.querySelector(`[data-series="${name}"]`), values, name);

function redraw() {
  const last = history.at(-1);
  for (const name of ['acquired', 'duplicates', 'denied']) {
    value($(name), last ? rate(last[name]) : '–', '/s');
    sparkOf(name, history.map((pulse) => pulse[name]));
  }
  draw(history, hold);
}

legend($('rates-legend'), [['acquired', 'acquired'], ['duplicates', 'duplicates'], ['denied', 'denied']]);
filters(() => stream.again());
dialogs(() => stream.again());
addEventListener('resize', redraw);

const THEMES = { auto: ['Auto', 'automatic'], light: ['Light', 'light'], dark: ['Dark', 'dark'] };
const theme = (name) => {
  text($('theme-text'), THEMES[name][0]);
  $('theme-button').setAttribute('aria-label', `Theme: ${THEMES[name][1]}`);
};
theme(window.clinchTheme.get());
$('theme-button').addEventListener('click', () => theme(window.clinchTheme.next()));
