// What there is to see, as the server sends it. An EventSource cannot show a token, so this reads the stream itself.

import { token } from './release.js';

const SILENCE_MS = 10_000; // longer than any pause of a server that lives
const PAUSES_MS = [300, 800, 2000, 4000, 5000];
const HIDDEN_MS = 20_000;

/**
 * Watches until the page is closed. `query()` says what is asked for; `on` has a function for each event, and `status`,
 * which is told `live`, `lost`, `token` (one is needed), `full` or `paused`.
 */
export function watch(query, on) {
  let reading = null;
  let failures = 0;
  let wake = () => {};

  const pause = (ms) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });

  async function once() {
    const abort = new AbortController();
    reading = abort;
    let silence = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const response = await fetch(`/console/events?${query()}`, {
        headers: { accept: 'text/event-stream', ...token.header() },
        signal: abort.signal,
      });
      if (response.status === 401) return 'token';
      if (response.status === 503) return 'full';
      if (!response.ok || !response.body) return 'lost';
      for await (const [name, data] of events(response.body)) {
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE_MS);
        failures = 0;
        on.status('live');
        on[name]?.(data);
      }
      return 'lost';
    } catch {
      return reading === abort ? 'lost' : 'changed';
    } finally {
      clearTimeout(silence);
      abort.abort();
    }
  }

  let paused = false;

  (async () => {
    for (;;) {
      const ended = await once();
      if (ended === 'changed') continue;
      on.status(paused ? 'paused' : ended);
      const pauseMs = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)] * (0.8 + 0.4 * Math.random());
      failures += 1;
      // Without the token, or without anybody who looks, there is nothing to try again for.
      await pause(paused || ended === 'token' ? 3_600_000 : pauseMs);
    }
  })();

  /** Asks anew, at once: the wish has changed, or there is a token now. */
  const again = () => {
    failures = 0;
    const old = reading;
    reading = null;
    old?.abort();
    wake();
  };

  // A page that nobody looks at asks for nothing.
  let hidden = 0;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hidden);
    if (document.hidden) {
      hidden = setTimeout(() => {
        paused = true;
        reading?.abort();
      }, HIDDEN_MS);
    } else if (paused) {
      paused = false;
      again();
    }
  });

  return { again };
}

/** Server-sent events, as pairs of name and data. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        let name = 'message';
        let data = '';
        for (const line of block.split('\n')) {
          if (line.startsWith('event: ')) name = line.slice(7);
          else if (line.startsWith('data: ')) data += line.slice(6);
        }
        if (data) yield [name, JSON.parse(data)];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
