/** Types of kwire.js, the client for rooms and for the event store. */

/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Where reading goes on: all that is needed to resume, also after a reload. Plain JSON. */
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

/** All that was stored has been delivered; what follows is live. Comes again after each resume. */
export interface CaughtUp {
  readonly kind: "caught_up";
  readonly room: string;
  readonly offset: number;
}

/** The server warns: this reader is `behind` events late. */
export interface Lagging {
  readonly kind: "lagging";
  readonly room: string;
  readonly offset: number;
  readonly behind: number;
}

/**
 * Events that cannot be delivered any more, both ends included. `toOffset` is null where nobody can know it: the room
 * was deleted and made anew. Reasons: "retention", "lagged" (`onLag: "drop"`), "damaged", "room_recreated", and
 * "log_shortened": the server itself lost these events, and other events will come under their offsets.
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
  /** What else the answer carried: `requested`, `oldest` and `newest` of an OffsetOutOfRange, `gap` of a GapFound. */
  readonly details: Readonly<Record<string, any>>;
  /** The events of this publish may be stored or not; they were not sent again. */
  readonly isUncertain: boolean;
}

export interface SubscribeOptions {
  /** Left out or null: only new events. 0: all there are. N: from there on. -N: so many back. */
  fromOffset?: number | null;
  /** Alone: true is all there are. False: new events only, whatever else is said. */
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

/** Iterate over it (leaving the loop leaves the room), or pull with `next` or `nextEvent`. */
export interface Subscription<Data = any> extends AsyncIterable<Item<Data>> {
  readonly room: string;
  /** Behind the last item taken. */
  readonly position: Position | undefined;
  /** The next item; rejects with what ended the subscription, if something did. */
  next(): Promise<Item<Data>>;
  /** The next event, without the marks between; a gap rejects with the code GapFound, and the next call goes on. */
  nextEvent(): Promise<Event<Data>>;
  /** Leave the room. What is queued can still be taken. */
  close(): void;
}

export interface NewEvent {
  type: string;
  data: unknown;
  metadata?: Record<string, string>;
  /** One of your own lets you find the event again when its fate is uncertain. */
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
  /** Store up to 1,000 events in one request: all of them, in this order, with nothing between, or none. */
  publishMany(room: string, events: ReadonlyArray<NewEvent>): Promise<Published[]>;
  /** Resolves when the server has subscribed. From then on losses of the connection are mended. */
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
  /** Its place in its topic, from 0 on. */
  readonly version: number;
  /** Its place among all events; only those who subscribe to all of them are told it. */
  readonly position: number | undefined;
  readonly type: string;
  readonly payload: Payload;
  /** ISO 8601, UTC. */
  readonly timestamp: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** A key that is no text is shown as base64. */
  readonly key: string | { readonly base64: string } | undefined;
}

export interface EventToStore {
  topic: string;
  type: string;
  /** What the topic's schema for this type says. */
  payload: unknown;
  metadata?: Record<string, string>;
  key?: string;
  /** An id of your own, kept as the record's `ce_id`. */
  eventId?: string;
  /** The version of the event that has to stand before this one in its topic, -1 for none. */
  expectedVersion?: number;
}

/** `next` is where the page behind this one begins (`since`, or `before` when reading backwards). */
export interface EventPage<Payload = any> {
  readonly events: ReadonlyArray<StoredEvent<Payload>>;
  readonly next: string | undefined;
}

/** The marks are those of rooms: `room` is the topic, or "all", and offsets are versions or positions. */
export type StoredItem<Payload = any> = StoredEvent<Payload> | CaughtUp | Lagging | Gap;

/** Iterate over it (leaving the loop ends it), or pull with `next` or `nextEvent`. */
export interface EventSubscription<Payload = any> extends AsyncIterable<StoredItem<Payload>> {
  /** The topic, or "all". */
  readonly room: string;
  /** Behind the last item taken. */
  readonly position: Position | undefined;
  /** The next item; rejects with what ended the subscription, if something did. */
  next(): Promise<StoredItem<Payload>>;
  /** The next event, without the marks between; a gap rejects with the code GapFound, and the next call goes on. */
  nextEvent(): Promise<StoredEvent<Payload>>;
  /** What is queued can still be taken. */
  close(): void;
}

export interface EventSubscribeOptions {
  /** The `position` of an earlier subscription. */
  resume?: Position;
  /** What the server does with a reader that is too slow. Default "catchup": it may be as slow as it likes. */
  onLag?: "terminate" | "catchup" | "drop";
  /** Only events of these types; their names may have no comma. */
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
   * Store all of them, in whatever topics, or none; resolves to their ids in order. A request whose answer was lost is
   * sent again under the same key, its own or yours, until `timeoutMs` is over, and stored once. If the error
   * `isUncertain` then, call again with the same `idempotencyKey`.
   */
  publishMany(events: ReadonlyArray<EventToStore>, options?: { idempotencyKey?: string }): Promise<string[]>;
  /** A page of events. `since` and `before` are ids and not part of it, `date` is a day in UTC (2025-07-06). */
  read<Payload = any>(
    topic: string,
    options?: { since?: string; before?: string; date?: string; limit?: number; isBackwards?: boolean },
  ): Promise<EventPage<Payload>>;
  /** All events there are now, page by page. */
  readAll<Payload = any>(
    topic: string,
    options?: { since?: string; date?: string },
  ): AsyncIterable<StoredEvent<Payload>>;
  /** The newest event; its version is what a writer may expect. */
  last<Payload = any>(topic: string): Promise<StoredEvent<Payload> | undefined>;
  event<Payload = any>(id: string): Promise<StoredEvent<Payload>>;
  /** Every event in global order. `fromPosition`: left out only what is new, N from there on, -N so many back. */
  subscribeAll<Payload = any>(
    options?: EventSubscribeOptions & { fromPosition?: number | "oldest" },
  ): Promise<EventSubscription<Payload>>;
  /** The same for one topic, by versions. */
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

/** As the server shows it. */
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
  /** Make it, or change what it keeps. */
  create(room: string, settings?: RoomSettings): Promise<RoomDescription>;
  get(room: string): Promise<RoomDescription>;
  /** With all its events. */
  delete(room: string): Promise<void>;
}

export interface ClientOptions {
  /** The WebSocket class to use. Left out: the global one. null, or where there is none: streaming requests instead. */
  WebSocket?: (new (url: string) => any) | null;
  fetch?: typeof fetch;
  /** Bounds every call, waiting for a connection included; a subscription reconnects without end. Default 30,000. */
  timeoutMs?: number;
  /**
   * A socket on which nothing is heard for half of this is asked for an answer, and given up after one and a half; a
   * streaming answer is given up after twice as long. Default 20,000.
   */
  quietMs?: number;
  /** What a subscription queues for a program that is slow, before it leaves the room for a while. Default 10,000. */
  queueItemsMax?: number;
  /** The waits between tries to connect double from one to the other. Defaults 100 and 5,000. */
  retryDelayMsMin?: number;
  retryDelayMsMax?: number;
}

export class KwireClient {
  /** `url` is by default where the module was loaded from, or else http://127.0.0.1:8082. */
  constructor(url?: string | URL, options?: ClientOptions);
  readonly stream: Stream;
  readonly rooms: Rooms;
  readonly events: Events;
  /** End all subscriptions and connections. */
  close(): void;
}
