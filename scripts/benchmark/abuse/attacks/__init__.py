"""All attacks, in the order in which they are run."""

from benchmark.abuse.attacks import (
    admin_requests,
    groups,
    guesses,
    held_http,
    http_bodies,
    idle_connections,
    login_floods,
    login_frames,
    produced,
    slow_logins,
    slow_sync,
    stalled_frames,
)

ATTACKS = (
    *http_bodies.ATTACKS,
    *produced.ATTACKS,
    *held_http.ATTACKS,
    *stalled_frames.ATTACKS,
    *admin_requests.ATTACKS,
    *groups.ATTACKS,
    *slow_sync.ATTACKS,
    *idle_connections.ATTACKS,
    *slow_logins.ATTACKS,
    *login_floods.ATTACKS,
    *login_frames.ATTACKS,
    *guesses.ATTACKS,
)
BY_NAME = {attack.name: attack for attack in ATTACKS}
