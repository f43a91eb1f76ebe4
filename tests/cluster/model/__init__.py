"""A model of the Stream Engine's replication protocol, without I/O, clock or threads. A seed repeats its schedule.

One stream is a list of segments. A segment has a copy set of N stores; a leader acknowledges an event when W stores
have it, and recovers a segment from the answers of R stores, with W + R > N.

- `master`: hands out epochs and keeps the segments. A change of a segment is one atomic step that compares the epoch.
- `store`: keeps entries (kind, payload, birth epoch, stamp epoch) by segment and slot. Every request carries an epoch:
  a larger one raises the sealed epoch, a smaller one is refused. A larger stamp replaces a smaller one. A store that
  lost unsynced data, or found damage, is in doubt about these slots until a leader writes them again.
- `leader`: proposes, counts matched indexes by store, acknowledges in order, and ends a full segment with a bridge. A
  new leader seals and reads, lets `recovery` decide, writes the decision with its own stamp, and closes the segment
  when W stores have all of it. On the parallel path it fills segment k+1 meanwhile, and acknowledges nothing there
  before k is sealed.
- `recovery`: the highest stamp wins in each slot, bridges take part, and slots in front of the largest acked hint are
  committed. A slot is empty when R stores that are not in doubt lack it. The prefix policy ends the segment at the
  first empty slot, the sparse policy writes a hole when entries follow.
- readers take from one store what is below its acked hint and its matched index.
- `world` applies steps. Messages are lost, duplicated, reordered or stored in part; leaders and stores crash; disks
  lose unsynced entries, fail to sync, are damaged or wiped; stores are replaced; leaders overlap, because an old leader
  goes on until a store or the master shows it a larger epoch.
- `schedule` draws the steps, ends with a leader that meets no fault, replays steps, and drops those that a failure does
  not need. `settings` says which faults happen how often.
- `checks` raises Violation for I1 to I3 (acknowledged events stay, recoveries agree, one event per slot), I8, I14 to
  I19, I24 and I25, which users or later leaders can see. Strict worlds also check the state: I4 to I6, I9, I11 to I13.
- `mistakes` lists wrong rules. Each is switched on in one place, and schedules must find it by what can be seen: a
  model that finds no mistake proves nothing. `biases` has a setting for each mistake that finds it soon.

Not modelled: leases and time (safety must not need them), offsets and producer states, torn writes, full disks, quorum
reads and chain replication.
"""
