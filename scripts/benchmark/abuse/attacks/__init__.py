"""All attacks, in the order in which they are run."""

from benchmark.abuse.attacks import admin_requests, groups, held_http, http_bodies, produced, slow_sync, stalled_frames

ATTACKS = (
    *http_bodies.ATTACKS,
    *produced.ATTACKS,
    *held_http.ATTACKS,
    *stalled_frames.ATTACKS,
    *admin_requests.ATTACKS,
    *groups.ATTACKS,
    *slow_sync.ATTACKS,
)
BY_NAME = {attack.name: attack for attack in ATTACKS}
