"""redis-py's `Lock`, driven by lines: `acquire KEY TTL_MS` -> `ok` | `denied`, `release KEY` -> `ok` | `not-held`, `exit`.

Anything that goes wrong besides is an exception, which ends the process: the test sees the end.
"""

import sys

import redis
from redis.exceptions import LockNotOwnedError


def main(url: str) -> None:
    client = redis.Redis.from_url(url)
    taken: dict[str, redis.lock.Lock] = {}
    for line in sys.stdin:
        match line.split():
            case ["acquire", key, ttl_ms]:
                lock = client.lock(key, timeout=int(ttl_ms) / 1000)
                if lock.acquire(blocking=False):
                    taken[key] = lock
                    answer("ok")
                else:
                    answer("denied")
            case ["release", key]:
                try:
                    taken.pop(key).release()
                    answer("ok")
                except LockNotOwnedError:
                    answer("not-held")
            case ["exit"]:
                return
            case _:
                raise ValueError(f"not understood: {line!r}")


def answer(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
