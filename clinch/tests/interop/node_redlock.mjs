// node's redlock, driven by lines: `acquire KEY TTL_MS` -> `ok` | `denied`, `release KEY` -> `ok` | `not-held`, `exit`.
//
// Anything that goes wrong besides is an exception, which ends the process: the test sees the end.

import { createInterface } from 'node:readline';
import Redis from 'ioredis';
import Redlock from 'redlock';

const client = new Redis(process.argv[2]);
const redlock = new Redlock([client], { retryCount: 0 }); // asks once, so that `denied` comes at once
const taken = new Map();

// redlock says "not locked" for a broken connection too, and tells them apart only by this event.
redlock.on('clientError', (error) => { throw error; });

const answer = (text) => process.stdout.write(`${text}\n`);

/** Whether the promise is kept; `false` for redlock's own refusal. */
const granted = (promise) => promise.then(
  (value) => value ?? true,
  (error) => {
    if (error instanceof Redlock.LockError) return false;
    throw error;
  },
);

for await (const line of createInterface({ input: process.stdin })) {
  const [command, key, ttlMs] = line.split(' ');
  if (command === 'acquire') {
    const lock = await granted(redlock.lock(key, Number(ttlMs)));
    if (lock) taken.set(key, lock);
    answer(lock ? 'ok' : 'denied');
  } else if (command === 'release') {
    const lock = taken.get(key);
    taken.delete(key);
    answer(await granted(lock.unlock()) ? 'ok' : 'not-held');
  } else if (command === 'exit') {
    break;
  } else {
    throw new Error(`not understood: ${line}`);
  }
}
client.disconnect();
