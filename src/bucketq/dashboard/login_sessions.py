"""Who uses the page: one user without a login, or sessions of users who have shown a token.

Without a login (on the loopback interface) all requests share the queues that this process opened
with its own credentials. With one, each session has connections of its own, made with the tokens
that its user has entered: the brokers check them at every call, so a token that is revoked is
refused at once. A session is named by a random cookie, lasts for hours, and is lost on a restart.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from bucketq.clock import Clock
from bucketq.dashboard.queue_watch import QueueWatch
from bucketq.errors import AccessDeniedError, InvalidRequestError, RejectedError
from bucketq.model.tokens import parse_token

COOKIE = "bucketq_session"
LONGEST = timedelta(hours=8)
"""A working day: after that the token must be entered again."""
IDLE = timedelta(hours=1)
"""How long a session is kept without a request."""
_MOST = 200
"""How many sessions there are at once; each holds connections."""
_LOGINS_AT_ONCE = 4
"""A login opens a connection, so attempts wait for each other."""


class LoginRequiredError(AccessDeniedError):
    """The user has shown no token for a queue, or must do it again."""


@dataclass
class LoginSession:
    """A user who has shown tokens, and the queues that they open."""

    began: datetime
    seen: datetime
    watches: dict[str, QueueWatch] = field(default_factory=dict)
    token_ids: dict[str, str] = field(default_factory=dict)

    def is_over(self, now: datetime) -> bool:
        """Whether the user must log in again."""
        return now - self.began > LONGEST or now - self.seen > IDLE


class LoginSessions:
    """Opens and ends sessions, and finds the queues of a request."""

    def __init__(self, queues: dict[str, str], clock: Clock, *, login: bool) -> None:
        """Serve queues, by name; ``login`` says whether users must show a token."""
        self.queues = queues
        self.login = login
        self._clock = clock
        self._own = {
            name: QueueWatch(name, url, clock) for name, url in queues.items() if not login
        }
        self._sessions: dict[str, LoginSession] = {}
        self._turns = asyncio.Semaphore(_LOGINS_AT_ONCE)

    async def start(self) -> None:
        """Begin to count the queues that need no login."""
        for watch in self._own.values():
            watch.start()

    async def close(self) -> None:
        """End all sessions, and close all queues."""
        sessions, self._sessions = self._sessions, {}
        watches = [*self._own.values(), *(w for s in sessions.values() for w in s.watches.values())]
        await asyncio.gather(*(watch.close() for watch in watches))

    def find(self, cookie: str, queue: str) -> QueueWatch:
        """Return the queue of a request.

        Raises:
            InvalidRequestError: There is no such queue.
            LoginRequiredError: The user has shown no token for it, or must log in again.
        """
        if queue not in self.queues:
            raise InvalidRequestError(f"there is no queue {queue!r} here")
        if not self.login:
            return self._own[queue]
        session = self.session(cookie)
        watch = None if session is None else session.watches.get(queue)
        if watch is None:
            raise LoginRequiredError(f"log in with a token of the queue {queue}")
        return watch

    def session(self, cookie: str) -> LoginSession | None:
        """Return the session of a cookie if it is not over."""
        # By a hash, so that the time of a lookup says nothing about cookies.
        session = self._sessions.get(_key(cookie))
        now = self._clock.now()
        if session is None or session.is_over(now):
            return None
        session.seen = now
        return session

    def is_open(self, cookie: str) -> bool:
        """Whether there is such a session; unlike ``session``, asking does not keep it alive."""
        session = self._sessions.get(_key(cookie))
        return session is not None and not session.is_over(self._clock.now())

    async def log_in(self, cookie: str, queue: str, token: str) -> str:
        """Check a token, and return the cookie of a new session, which keeps the other queues.

        Raises:
            RejectedError: The token is not valid, cannot read the queue, or is not needed.
        """
        if queue not in self.queues or not self.login:
            raise InvalidRequestError(f"there is no queue {queue!r} to log in to")
        token_id = parse_token(token)
        async with self._turns:
            watch = QueueWatch(queue, self.queues[queue], self._clock, token=token, login=True)
            try:
                await self._check(watch)
            except BaseException:
                await watch.close()
                raise
        await self._end_old()
        known = self._sessions.pop(_key(cookie), None)
        now = self._clock.now()
        session = LoginSession(now, now)
        if known is not None and not known.is_over(now):
            session.watches, session.token_ids = known.watches, known.token_ids
        replaced = session.watches.get(queue)
        if replaced is not None:
            await replaced.close()
        watch.start()
        session.watches[queue], session.token_ids[queue] = watch, token_id
        fresh = self._clock.entropy(32).hex()
        self._sessions[_key(fresh)] = session
        return fresh

    async def log_out(self, cookie: str) -> None:
        """End a session."""
        session = self._sessions.pop(_key(cookie), None)
        if session is not None:
            await _close(session)

    async def _check(self, watch: QueueWatch) -> None:
        settings = await watch.call(lambda queue: queue.settings())
        if not settings.require_token:
            # Any text would do as a token there.
            raise RejectedError(
                f"the queue {watch.name} requires no token, so no user can log in to it: "
                f"`bucketq token create {watch.url} --name NAME --rights RIGHTS` makes one"
            )
        await watch.find_rights()

    async def _end_old(self) -> None:
        now = self._clock.now()
        over = [key for key, session in self._sessions.items() if session.is_over(now)]
        left = [key for key in self._sessions if key not in over]
        over += left[: max(0, len(left) - _MOST + 1)]
        for key in over:
            await _close(self._sessions.pop(key))


def _key(cookie: str) -> str:
    return sha256(cookie.encode(errors="surrogatepass")).hexdigest()


async def _close(session: LoginSession) -> None:
    await asyncio.gather(*(watch.close() for watch in session.watches.values()))
