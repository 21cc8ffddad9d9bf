// Small charts, drawn as SVG.

import { $, count, duration, h, rate, s, short } from './dom.js';

/** How many points a chart has: one a second. */
export const POINTS = 180;

const SPARK = [100, 30];

/** A line without axes, in a tile. */
export function spark(svg, values, name) {
  const [width, height] = SPARK;
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  const last = values.slice(-90);
  if (last.length < 2) {
    svg.replaceChildren();
    return;
  }
  const top = Math.max(...last, 1e-9);
  const step = width / 89;
  const from = width - (last.length - 1) * step;
  const points = last.map((value, i) => [from + i * step, height - 2 - (value / top) * (height - 8)]);
  svg.replaceChildren(...line(points, height, name));
}

function line(points, bottom, name) {
  const path = points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
  const area = `${path}L${points.at(-1)[0].toFixed(1)} ${bottom}L${points[0][0].toFixed(1)} ${bottom}Z`;
  return [s('path', { class: `area f-${name}`, d: area }), s('path', { class: `series s-${name}`, d: path })];
}

/** What a chart is drawn in: its size on the screen, so that text keeps its own; with room for labels at the left. */
function frame(svg, labels) {
  const box = svg.getBoundingClientRect();
  const [width, height] = [Math.max(120, box.width), Math.max(80, box.height)];
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const left = labels.length ? 10 + 6.4 * Math.max(...labels.map((label) => label.length)) : 0;
  return { left, right: width - 4, top: 8, bottom: height - 18 };
}

/** A number that is easy to read and not below this one. */
function round(top) {
  if (top <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= top * 0.999);
}

const SHARES = [0, 0.5, 1];

function axes(area, labels) {
  const parts = [];
  SHARES.forEach((share, i) => {
    const y = area.bottom - share * (area.bottom - area.top);
    parts.push(s('line', { class: 'grid', x1: area.left, x2: area.right, y1: y, y2: y }));
    parts.push(s('text', { x: area.left - 6, y: y + 4, 'text-anchor': 'end' }, labels[i]));
  });
  return parts;
}

/** Several lines over the last minutes. `series` are pairs of a name and its values, which may be `null`. */
export function lines(svg, series, label, said) {
  const known = series.flatMap(([, values]) => values).filter((value) => value !== null);
  const top = round(Math.max(0, ...known));
  const labels = SHARES.map((share) => label(top * share));
  const area = frame(svg, labels);
  const step = (area.right - area.left) / (POINTS - 1);
  const parts = axes(area, labels);
  for (const [name, values] of series) {
    const from = area.right - (values.length - 1) * step;
    let points = [];
    const finish = () => {
      if (points.length > 1) parts.push(...line(points, area.bottom, name));
      points = [];
    };
    values.forEach((value, i) => {
      if (value === null) finish();
      else points.push([from + i * step, area.bottom - (value / top) * (area.bottom - area.top)]);
    });
    finish();
  }
  parts.push(s('text', { x: area.left, y: area.bottom + 14 }, '3 min ago'));
  parts.push(s('text', { x: area.right, y: area.bottom + 14, 'text-anchor': 'end' }, 'now'));
  svg.replaceChildren(...parts);
  svg.setAttribute('aria-label', said);
}

/** How many were held how long. `hold` has the upper bounds of the buckets in seconds, and how many fell into each. */
export function histogram(svg, hold) {
  const area = frame(svg, []);
  const all = hold.counts.reduce((sum, n) => sum + n, 0);
  const top = Math.max(1, ...hold.counts);
  const width = (area.right - area.left) / hold.counts.length;
  const parts = [s('line', { class: 'grid', x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom })];
  hold.counts.forEach((n, i) => {
    const tall = n === 0 ? 2 : Math.max(4, (n / top) * (area.bottom - area.top - 12));
    const x = area.left + i * width;
    const below = hold.bounds[i];
    const name = below === undefined ? `longer than ${duration(hold.bounds.at(-1) * 1000)}` : `up to ${duration(below * 1000)}`;
    parts.push(s('rect', { class: n ? 'bucket' : 'bucket none', x: x + 1.5, y: area.bottom - tall, width: Math.max(1, width - 3), height: tall, rx: 2 },
      s('title', {}, `${name}: ${count(n)}`)));
    if (n > 0 && hold.counts.length <= 16) parts.push(s('text', { x: x + width / 2, y: area.bottom - tall - 4, 'text-anchor': 'middle' }, n > 9999 ? `${Math.round(n / 1000)}k` : String(n)));
    if (i % 4 === 3 && below !== undefined) parts.push(s('text', { x: x + width, y: area.bottom + 14, 'text-anchor': 'middle' }, brief(below)));
  });
  svg.replaceChildren(...parts);
  svg.setAttribute('aria-label', `${count(all)} leases were held and given back${all ? `, ${duration(hold.mean_s * 1000)} on average` : ''}`);
}

/** A bound of a bucket, as short as can be. */
function brief(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds} s`;
  return `${Math.round(seconds / 60)} min`;
}

/** A legend of names with their colours. */
export function legend(element, entries) {
  const parts = entries.map(([name, what]) => h('span', {}, h('span', { class: `swatch f-${name}`, 'aria-hidden': true }), what));
  element.replaceChildren(...parts);
}

/** All charts, from what was measured. */
export function draw(history, hold) {
  const of = (name) => history.map((pulse) => pulse[name]);
  const last = history.at(-1);
  const named = ['acquired', 'duplicates', 'denied'];
  const said = named.map((name) => `${rate(last?.[name] ?? 0)} ${name} a second`).join(', ');
  lines($('rates'), named.map((name) => [name, of(name)]), (n) => rate(n), `Over the last three minutes; now ${said}`);
  const calls = of('call_us');
  const known = calls.filter((us) => us !== null);
  const mean = known.length ? known.reduce((sum, us) => sum + us, 0) / known.length : null;
  const note = mean === null ? 'none yet' : `mean ${short(mean).join(' ')}`;
  lines($('calls'), [['mean', calls]], (us) => short(us).join(' ').replace(/\.0+ /, ' '), `Time of calls to the engine over the last three minutes, ${note}`);
  $('calls-note').textContent = note;
  if (hold) {
    histogram($('hold'), hold);
    const all = hold.counts.reduce((sum, n) => sum + n, 0);
    $('hold-note').textContent = all ? `${count(all)} given back, mean ${duration(hold.mean_s * 1000)}` : 'none given back yet';
  }
}
