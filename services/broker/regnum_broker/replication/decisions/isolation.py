"""When a leader must take it that it has been replaced without hearing of it. Pure.

Goals: clients do not stay with a leader that only they can still reach; a store that is merely away costs nothing.

Constraints: nobody can tell a deposed leader that is cut off so. It cannot tell either, but it can see that everybody
who would have told it is silent: the store, the controller, and every other member of the ISR. Any one of them is
enough to go on: while a follower that may be elected instead still fetches, it has not been; while the lifeline is
open, the controller has not taken this broker for dead. But an open lifeline on which the controller says that its
orders go astray is no such sign: it reaches this broker by no order, and may have elected another leader. A leader that
is alone in the ISR goes on for ever: no other member could be elected instead (safety rule S8).

Example: a broker is cut off from all but its clients. Its session is lost after 6 s and its lifeline after 2 s; the
followers' last requests are older than 2 s by then. It stops serving, and its clients ask other brokers who leads.
"""

from typing import Final

SILENCE_S: Final = 2.0
"""A follower that has not asked for so long is silent; one in order asks every 500 ms at least."""


def is_cut_off(
    *,
    session_lost: bool,
    lifeline_open: bool,
    orders_astray: bool,
    others_in_sync: bool,
    heard_s: float,
    now_s: float,
) -> bool:
    """Whether a leader stops serving a partition.

    Args:
        session_lost: whether the broker's session with the store is over and there is no new one.
        lifeline_open: whether a lifeline to a controller is open.
        orders_astray: whether that controller says that another process answers at this broker's address.
        others_in_sync: whether the ISR has another member than the leader.
        heard_s: moment of the newest request of one of these, or of the beginning of the leadership.
        now_s: the present, on the same monotonic clock.
    """
    nobody_would_tell = orders_astray or (session_lost and not lifeline_open)
    return nobody_would_tell and others_in_sync and now_s - heard_s > SILENCE_S
