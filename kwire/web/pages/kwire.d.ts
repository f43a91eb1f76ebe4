/** Types of kwire.js, the client for rooms and for the event store. */

/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** The position to resume a subscription from, also after a reload. Plain JSON. */
export interface Position {
  readonly epoch: string;
  readonly nextOffset: number;
}

export interface Event<Data = any> {
  readonly kind: "event";
  readonly room: string;
  readonly eventId: string;
  readonly offset: number;
  readonly type: string;
  readonly data: Data;
  /** ISO 8601, UTC. */
  readonly timestamp: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** All stored events have been delivered; the following ones are new. Sent again after each resume. */
export interface CaughtUp {
  readonly kind: "caught_up";
  readonly room: string;
  readonly offset: number;
}

/** A warning of the server: this reader lags by `behind` events. */
export interface Lagging {
  readonly kind: "lagging";
  readonly room: string;
  readonly offset: number;
  readonly behind: number;
}

/**
 * Events that can no longer be delivered, both ends included. `toOffset` is null if it cannot be known: the room was
 * deleted and recreated. Reasons: "retention", "lagged" (`onLag: "drop"`), "damaged", "room_recreated", and
 * "log_shortened": the server lost these events, and new events will reuse their offsets.
 */
export interface Gap {
  readonly kind: "gap";
  readonly room: string;
  readonly fromOffset: number;
  readonly toOffset: number | null;
  readonly reason: string;
}

export type Item<Data = any> = Event<Data> | CaughtUp | Lagging | Gap;

/** All errors of this client. */
export class KwireError extends Error {
  /** The server's code, or Unreachable, ConnectionLost, PublishUncertain, AnswerTimeout, Closed or GapFound. */
  readonly code: string;
  /** Further fields of the error: `requested`, `oldest` and `newest` of an OffsetOutOfRange, `gap` of a GapFound. */
  readonly details: Readonly<Record<string, any>>;
  /** Whether the events of this publish were stored is unknown; they were not sent again. */
  readonly isUncertain: boolean;
}

export interface SubscribeOptions {
  /** Absent or null: only new events. 0: all events. N: from offset N on. -N: the last N events. */
  fromOffset?: number | null;
  /** Without `fromOffset`, true: all events. False: new events only, regardless of the other options. */
  replay?: boolean;
  /** From the first event of this time or later; a number is milliseconds since 1970. */
  fromTime?: Date | string | number;
  /** The `position` of an earlier subscription. */
  resume?: Position;
  /** What the server does with a reader that is too slow. */
  onLag?: "terminate" | "catchup" | "drop";
  /** Only events of these types. */
  types?: Iterable<string>;
}

/** Iterate over it (leaving the loop unsubscribes), or call `next` or `nextEvent`. */
export interface Subscription<Data = any> extends AsyncIterable<Item<Data>> {
  readonly room: string;
  /** The position after the last item returned. */
  readonly position: Position | undefined;
  /** The next item; rejects with the error that ended the subscription. */
  next(): Promise<Item<Data>>;
  /** The next event, skipping control items. A gap rejects with the code GapFound; the next call continues after it. */
  nextEvent(): Promise<Event<Data>>;
  /** Unsubscribe. Queued items can still be read. */
  close(): void;
}

export interface NewEvent {
  type: string;
  data: unknown;
  metadata?: Record<string, string>;
  /** An id of your own, with which you can find the event if the publish is uncertain. */
  eventId?: string;
  /** The key of the record, for Kafka clients. */
  key?: string;
}

export interface Published {
  readonly eventId: string;
  readonly offset: number;
  readonly subscribersNotified: number;
}

/** An empty room has oldest 0 and newest -1. */
export interface History<Data = any> {
  readonly events: ReadonlyArray<Event<Data>>;
  readonly oldestOffset: number;
  readonly newestOffset: number;
}

export interface Stream {
  /** Resolves when the event is stored. Never sent twice: see `KwireError.isUncertain`. */
  publish(
    room: string,
    eventType: string,
    data: unknown,
    options?: { metadata?: Record<string, string>; eventId?: string; key?: string },
  ): Promise<Published>;
  /** Store up to 1,000 events in one request, atomically and with consecutive offsets. */
  publishMany(room: string, events: ReadonlyArray<NewEvent>): Promise<Published[]>;
  /** Resolves when the server has subscribed. From then on the client reconnects by itself. */
  subscribe<Data = any>(room: string, options?: SubscribeOptions): Promise<Subscription<Data>>;
  /** Stored events, both ends included; at most `limit` (the server's default is 100). */
  history<Data = any>(
    room: string,
    options?: { fromOffset?: number; toOffset?: number; limit?: number },
  ): Promise<History<Data>>;
}

/** An event of the event store. */
export interface StoredEvent<Payload = any> {
  readonly kind: "event";
  /** `<topic>-<number>`, numbered from 1. */
  readonly id: string;
  readonly topic: string;
  /** Its position in its topic, from 0 on. */
  readonly version: number;
  /** Its position among all events; only in a subscription to all events. */
  readonly position: number | undefined;
  readonly type: string;
  readonly payload: Payload;
  /** ISO 8601, UTC. */
  readonly timestamp: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** A key that is not valid UTF-8 is base64. */
  readonly key: string | { readonly base64: string } | undefined;
}

export interface EventToStore {
  topic: string;
  type: string;
  /** Must match the topic's schema for this type. */
  payload: unknown;
  metadata?: Record<string, string>;
  key?: string;
  /** An id of your own, stored as the record's `ce_id`. */
  eventId?: string;
  /** The version of the event that must precede this one in its topic, -1 for none. */
  expectedVersion?: number;
}

/** `next` is the `since` of the next page (`before` when reading backwards). */
export interface EventPage<Payload = any> {
  readonly events: ReadonlyArray<StoredEvent<Payload>>;
  readonly next: string | undefined;
}

/** The control items are those of rooms: `room` is the topic, or "all", and offsets are versions or positions. */
export type StoredItem<Payload = any> = StoredEvent<Payload> | CaughtUp | Lagging | Gap;

/** Iterate over it (leaving the loop unsubscribes), or call `next` or `nextEvent`. */
export interface EventSubscription<Payload = any> extends AsyncIterable<StoredItem<Payload>> {
  /** The topic, or "all". */
  readonly room: string;
  /** The position after the last item returned. */
  readonly position: Position | undefined;
  /** The next item; rejects with the error that ended the subscription. */
  next(): Promise<StoredItem<Payload>>;
  /** The next event, skipping control items. A gap rejects with the code GapFound; the next call continues after it. */
  nextEvent(): Promise<StoredEvent<Payload>>;
  /** Unsubscribe. Queued items can still be read. */
  close(): void;
}

export interface EventSubscribeOptions {
  /** The `position` of an earlier subscription. */
  resume?: Position;
  /** What the server does with a reader that is too slow. Default "catchup": its speed does not matter. */
  onLag?: "terminate" | "catchup" | "drop";
  /** Only events of these types; the names must not contain commas. */
  types?: Iterable<string>;
}

export interface Events {
  /** Store one event; resolves to its id. */
  publish(
    topic: string,
    type: string,
    payload: unknown,
    options?: {
      metadata?: Record<string, string>;
      key?: string;
      eventId?: string;
      expectedVersion?: number;
      idempotencyKey?: string;
    },
  ): Promise<string>;
  /**
   * Store events atomically, in one or many topics; resolves to their ids in order. A request whose answer was lost is
   * sent again with the same key, generated or yours, until `timeoutMs` has passed, and stored once. If the error then
   * `isUncertain`, call again with the same `idempotencyKey`.
   */
  publishMany(events: ReadonlyArray<EventToStore>, options?: { idempotencyKey?: string }): Promise<string[]>;
  /** A page of events. `since` and `before` are ids and not part of it, `date` is a day in UTC (2025-07-06). */
  read<Payload = any>(
    topic: string,
    options?: { since?: string; before?: string; date?: string; limit?: number; isBackwards?: boolean },
  ): Promise<EventPage<Payload>>;
  /** All events up to now, read page by page. */
  readAll<Payload = any>(
    topic: string,
    options?: { since?: string; date?: string },
  ): AsyncIterable<StoredEvent<Payload>>;
  /** The newest event; its version is the `expectedVersion` of the next one. */
  last<Payload = any>(topic: string): Promise<StoredEvent<Payload> | undefined>;
  event<Payload = any>(id: string): Promise<StoredEvent<Payload>>;
  /** All events in global order. `fromPosition` absent: new events only; N: from N on; -N: the last N events. */
  subscribeAll<Payload = any>(
    options?: EventSubscribeOptions & { fromPosition?: number | "oldest" },
  ): Promise<EventSubscription<Payload>>;
  /** The events of one topic; `fromVersion` is like `fromPosition`. */
  subscribeStream<Payload = any>(
    topic: string,
    options?: EventSubscribeOptions & { fromVersion?: number | "oldest" },
  ): Promise<EventSubscription<Payload>>;
}

export interface RoomSettings {
  retention_mode?: "time" | "count" | "hybrid" | "infinite";
  retention_hours?: number;
  max_events?: number;
}

/** The server's description of a room. */
export interface RoomDescription {
  readonly room: string;
  readonly topic: string;
  readonly epoch: string;
  readonly is_room: boolean;
  readonly created_at: string | null;
  readonly last_event_at: string | null;
  readonly oldest_offset: number;
  readonly newest_offset: number;
  readonly event_count: number;
  readonly size_bytes: number;
  readonly subscribers: number;
  readonly retention: { readonly mode: string; readonly hours: number | null; readonly max_events: number | null };
}

export interface Rooms {
  /** The names of all rooms, read page by page. */
  list(prefix?: string): AsyncIterable<string>;
  /** Create a room, or change its retention. */
  create(room: string, settings?: RoomSettings): Promise<RoomDescription>;
  get(room: string): Promise<RoomDescription>;
  /** Delete a room and all its events. */
  delete(room: string): Promise<void>;
}

export interface ClientOptions {
  /** The name and the password of a SCRAM user, for a server with `kwire.http.authentication=basic`. */
  user?: string;
  password?: string;
  /** The WebSocket class. Absent: the global one. null, or if there is none: streaming requests are used instead. */
  WebSocket?: (new (url: string, protocols?: string[]) => any) | null;
  fetch?: typeof fetch;
  /** Timeout of every call, including the connection setup; a subscription reconnects forever. Default 30,000. */
  timeoutMs?: number;
  /**
   * After half of this time without data a WebSocket is probed, after 1.5 times it is closed; a streaming answer is
   * closed after twice this time. Default 20,000.
   */
  quietMs?: number;
  /** Items that a subscription queues for a slow program before it pauses the subscription. Default 10,000. */
  queueItemsMax?: number;
  /** The delay between connection attempts doubles from the first to the second value. Defaults 100 and 5,000. */
  retryDelayMsMin?: number;
  retryDelayMsMax?: number;
}

export class KwireClient {
  /** The default `url` is the server from which the module was loaded, otherwise http://127.0.0.1:8082. */
  constructor(url?: string | URL, options?: ClientOptions);
  readonly stream: Stream;
  readonly rooms: Rooms;
  readonly events: Events;
  /** End all subscriptions and connections. */
  close(): void;
}
