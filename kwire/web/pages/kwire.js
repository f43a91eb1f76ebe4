/**
 * kwire: the client for rooms and for the event store, for browsers and Node 20 or newer. No dependencies.
 *
 *     import { KwireClient } from "/kwire.js";
 *     const client = new KwireClient();
 *     await client.stream.publish("chat-room-1", "message", { user: "alice", text: "Hello!" });
 *     for await (const item of await client.stream.subscribe("chat-room-1", { fromOffset: -50, replay: true })) {
 *       if (item.kind === "event") console.log(item.offset, item.data);
 *     }
 *
 * With a WebSocket (browsers, Node 22, or a class given as an option) all rooms share one connection. Without one
 * (Node 20), commands are single requests and each subscription is a streaming answer with one JSON object per line.
 * The API is the same. The event store (`client.events`) always uses single requests and streaming answers: a browser
 * hides why a WebSocket was refused, and a stream of lines has flow control for a slow reader.
 *
 * When its connection is lost, also by a restart of the server, a subscription continues after the last item it
 * returned. Events that can no longer be read are reported as an item of kind "gap". Offsets are exact up to 2^53.
 */

const CONNECT_TIMEOUT_MS = 10_000;
const TIMEOUT_MS = 30_000;
const RETRY_DELAY_MS_MIN = 100;
const RETRY_DELAY_MS_MAX = 5_000;
// After a connection of at least this duration the retry delay starts again at its minimum.
const GOOD_AFTER_MS = RETRY_DELAY_MS_MAX;
// After half of this time without data a WebSocket is probed, after 1.5 times it is closed. A stream of lines, in which
// the server periodically sends an empty line, is closed after twice this time.
const QUIET_MS = 20_000;
const UNANSWERED_MAX = 10_000;
const ROOMS_PER_SOCKET_MAX = 1_000;
// Longer messages are sent as HTTP requests: the server would close the connection for a message that is too large.
const TEXT_CHARACTERS_MAX = 256 * 1024;
const QUEUE_ITEMS_MAX = 10_000;
const QUEUE_CHARACTERS_MAX = 16 * 1024 * 1024;
const MARK_CHARACTERS = 100;
const LINE_CHARACTERS_MAX = 64 * 1024 * 1024;
const PAGE_ROOMS = 500;
const PAGE_EVENTS = 1_000;
const KEY_BYTES = 16;
// Codes that end a subscription. After any other code a subscription that had begun is retried.
const LASTING_CODES = new Set([
  "RoomNotFound",
  "InvalidName",
  "TopicHasPartitions",
  "TopicNotFound",
  "NotAnEventTopic",
  "BadRequest",
  "InvalidCommand",
  "UnknownCommand",
  "Forbidden",
  "Unauthorized",
  "TOPIC_AUTHORIZATION_FAILED",
]);

// The server does not know whether it stored the events, or is stopping. A retry with the same key is stored once.
const UNCERTAIN_CODES = new Set(["REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER"]);

/** All errors of this client. `code` is the server's, or Unreachable, ConnectionLost, PublishUncertain, AnswerTimeout,
 * Closed or GapFound. */
export class KwireError extends Error {
  constructor(code, message, details = {}) {
    super(message ? `${code}: ${message}` : code);
    this.name = "KwireError";
    this.code = code;
    this.details = details;
  }

  /** Whether the events of this publish were stored is unknown; they were not sent again. */
  get isUncertain() {
    return this.code === "PublishUncertain" || this.code === "AnswerTimeout";
  }
}

const tooLong = new KwireError("TooLongForSocket");

const refusalOf = ({ code = "Unknown", message = "", ...details }) => new KwireError(code, message, details);

const sleep = (delayMs) => new Promise((resolve) => setTimeout(resolve, delayMs));

/** The delay before the next attempt: exponential, bounded, with random jitter. */
class Backoff {
  constructor(delayMsMin, delayMsMax) {
    this.delayMsMin = delayMsMin;
    this.delayMsMax = delayMsMax;
    this.boundMs = delayMsMin;
  }

  nextDelayMs() {
    const boundMs = this.boundMs;
    this.boundMs = Math.min(boundMs * 2, this.delayMsMax);
    return boundMs / 2 + (Math.random() * boundMs) / 2;
  }

  lived(ms) {
    if (ms >= GOOD_AFTER_MS) this.boundMs = this.delayMsMin;
  }
}

/**
 * The position of one subscription and how it resumes. Every offset from the start of the subscription up to
 * `nextOffset` was returned once, in order, or is part of a gap that was returned.
 */
class Cursor {
  constructor(room, { fromOffset, replay, fromTime, resume, onLag, types }) {
    this.room = room;
    this.start = { from_offset: fromOffset ?? undefined, replay: replay ?? undefined, from_time: timeOf(fromTime) };
    this.options = { on_lag: onLag, types: types === undefined ? undefined : [...types] };
    this.epoch = resume?.epoch;
    this.nextOffset = resume?.nextOffset;
    this.newestKnown = resume === undefined ? -1 : resume.nextOffset - 1;
  }

  get position() {
    return this.nextOffset === undefined ? undefined : { epoch: this.epoch, nextOffset: this.nextOffset };
  }

  request() {
    const start =
      this.nextOffset === undefined ? this.start : { from_offset: this.nextOffset, epoch: this.epoch };
    return { room: this.room, ...this.options, ...start };
  }

  /** The gaps that an answer implies, and whether to subscribe again at another offset. */
  answered({ epoch, next_offset: beginsAt, newest_offset: newest }) {
    const { nextOffset: wanted, epoch: knownEpoch, newestKnown } = this;
    this.epoch = epoch;
    this.nextOffset = beginsAt;
    this.newestKnown = newest;
    if (wanted === undefined) return { gaps: [], mustAskAgain: false };
    if (epoch !== knownEpoch) return { gaps: [this.gap(wanted, null, "room_recreated")], mustAskAgain: false };
    if (newest < newestKnown && newest < wanted - 1) {
      // The server lost the end of the log (a power failure) and reuses its offsets.
      this.nextOffset = newest + 1;
      return { gaps: [this.gap(newest + 1, wanted - 1, "log_shortened")], mustAskAgain: true };
    }
    // Offset 0 is never refused, because it means the oldest event: missing events are detected only here.
    return { gaps: beginsAt > wanted ? [this.gap(wanted, beginsAt - 1, "retention")] : [], mustAskAgain: false };
  }

  /** The gap that an error implies, after which reading continues; undefined if the error is passed to the user. */
  refused(error) {
    const oldest = error.details.oldest;
    if (this.nextOffset === undefined || error.code !== "OffsetOutOfRange") return undefined;
    if (oldest <= this.nextOffset) return undefined;
    const gap = this.gap(this.nextOffset, oldest - 1, "retention");
    this.nextOffset = oldest;
    this.newestKnown = Math.max(this.newestKnown, oldest - 1);
    return gap;
  }

  take(offset) {
    if (offset < this.nextOffset) return false;
    this.nextOffset = offset + 1;
    this.newestKnown = Math.max(this.newestKnown, offset);
    return true;
  }

  passed(offset) {
    if (this.nextOffset !== undefined) this.nextOffset = Math.max(this.nextOffset, offset + 1);
  }

  gap(fromOffset, toOffset, reason) {
    return { kind: "gap", room: this.room, fromOffset, toOffset, reason };
  }
}

const timeOf = (time) => (time instanceof Date ? time.toISOString() : (time ?? undefined));

/** The items of a subscription in order, across reconnects. If the program reads too slowly, the link unsubscribes, and
 * subscribes again once the queued items are read: the server's log holds the rest. */
class Subscription {
  #queue = [];
  #head = 0;
  #characters = 0;
  #waiting = [];
  #wakeFeed = () => {};
  #end;

  constructor(source, cursor, feed) {
    this.source = source;
    this.cursor = cursor;
    this.feed = feed;
    /** The position after the last item returned. Store it to continue from here after a reload (`resume`). */
    this.position = cursor.position;
    this.isAttached = false;
    this.isPaused = false;
    this.hasBegun = false;
    this.started = new Promise((resolve, reject) => {
      this.begin = resolve;
      this.fail = reject;
    });
    this.started.catch(() => {});
  }

  get room() {
    return this.cursor.room;
  }

  get isOver() {
    return this.#end !== undefined;
  }

  get hasSpace() {
    const items = this.#queue.length - this.#head;
    return items < this.feed.settings.queueItemsMax && this.#characters < QUEUE_CHARACTERS_MAX;
  }

  /** The next item; rejects with the error that ended the subscription. */
  async next() {
    for (;;) {
      const taken = this.#take();
      if (taken !== undefined) return taken;
      if (this.isPaused) this.feed.reattach(this);
      else if (this.#end !== undefined) throw this.#end;
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
  }

  /** The next event, skipping control items. A gap rejects with the code GapFound; the next call continues after it. */
  async nextEvent() {
    for (;;) {
      const item = await this.next();
      if (item.kind === "event") return item;
      if (item.kind === "gap") throw new KwireError("GapFound", `events are missing (${item.reason})`, { gap: item });
    }
  }

  /** Unsubscribe. Queued items can still be read. */
  close() {
    this.ended(new KwireError("Closed", `the subscription to ${this.room} was closed`));
    this.feed.leave(this);
  }

  async *[Symbol.asyncIterator]() {
    try {
      for (;;) yield await this.next();
    } catch (error) {
      if (error.code !== "Closed") throw error;
    } finally {
      this.close();
    }
  }

  #take() {
    while (this.#head < this.#queue.length) {
      const { item, position, characters } = this.#queue[this.#head];
      this.#queue[this.#head++] = undefined;
      if (this.#head > 1_000 && this.#head * 2 > this.#queue.length) {
        this.#queue = this.#queue.slice(this.#head);
        this.#head = 0;
      }
      this.#characters -= characters;
      this.position = position;
      if (this.hasSpace) this.#wakeFeed();
      if (item !== undefined) return item;
    }
    return undefined;
  }

  #put(item, characters = MARK_CHARACTERS) {
    this.#queue.push({ item, position: this.cursor.position, characters });
    this.#characters += characters;
    this.#wake();
  }

  #wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  // The following methods are called by the links.

  space() {
    return this.hasSpace || this.isOver ? Promise.resolve() : new Promise((resolve) => (this.#wakeFeed = resolve));
  }

  answered(result) {
    const { gaps, mustAskAgain } = this.cursor.answered(result);
    this.isAttached = !mustAskAgain;
    this.isPaused = false;
    for (const gap of gaps) this.#put(gap);
    if (!this.hasBegun) {
      this.hasBegun = true;
      this.position ??= this.cursor.position;
      this.begin();
    }
    return mustAskAgain;
  }

  /** True if the subscription can continue after a gap. */
  refused(error) {
    const gap = this.cursor.refused(error);
    if (gap !== undefined) this.#put(gap);
    return gap !== undefined;
  }

  ended(error) {
    this.isAttached = this.isPaused = false;
    this.#end ??= error;
    this.fail(error);
    this.#wakeFeed();
    this.#wake();
  }

  /** An event or a control message other than `closed`. */
  received(frame, characters) {
    if (!this.isAttached) return;
    const { room } = this;
    const { offset = -1 } = frame;
    switch (frame.control) {
      case undefined:
        if (this.cursor.take(offset)) this.#put(this.source.itemOf(frame), characters);
        break;
      case "gap":
        this.cursor.passed(frame.to_offset);
        this.#put(this.cursor.gap(frame.from_offset, frame.to_offset, frame.reason));
        break;
      case "caught_up":
        this.cursor.passed(offset);
        this.#put({ kind: "caught_up", room, offset });
        break;
      case "lagging":
        this.#put({ kind: "lagging", room, offset, behind: frame.behind });
        break;
      case "checkpoint":
        this.cursor.passed(offset);
        this.#put(undefined);
        break;
    }
  }
}

function itemOf({ room, event_id: eventId, offset, type, data, timestamp, metadata = {} }) {
  return { kind: "event", room, eventId, offset, type, data, timestamp, metadata };
}

function storedEventOf({ id, topic, version, position, type, payload, timestamp, metadata = {}, key }) {
  return { kind: "event", id, topic, version, position, type, payload, timestamp, metadata, key };
}

/** A room as the source of a subscription: the path of its stream, and how its lines are decoded. */
const ROOM = {
  pathOf: ({ room, ...query }) => `/rooms/${encodeURIComponent(room)}/subscribe?${queryOf(query)}`,
  frameOf: (frame) => frame,
  itemOf,
};

/** The event store as the source of a subscription: an offset is a `position` among all events, or a `version`. */
const storeSource = (path, place) => ({
  pathOf: ({ room: _, from_offset: from, ...query }) => `${path}?${queryOf({ from, ...query })}`,
  frameOf: (frame) => ({
    ...frame,
    offset: frame[place],
    from_offset: frame[`from_${place}`],
    to_offset: frame[`to_${place}`],
    next_offset: frame[`next_${place}`],
    newest_offset: frame[`newest_${place}`],
  }),
  itemOf: storedEventOf,
});

/** Resolves when the server has subscribed. */
async function subscribed(source, cursor, link, timeoutMs) {
  const subscription = new Subscription(source, cursor, link);
  link.add(subscription);
  const timer = setTimeout(
    () => subscription.ended(new KwireError("Unreachable", `no answer to the subscription to ${cursor.room}`)),
    timeoutMs,
  );
  try {
    await subscription.started;
  } catch (error) {
    link.leave(subscription);
    throw error;
  } finally {
    clearTimeout(timer);
  }
  return subscription;
}

/** Handles an error or a `closed` message of the server, for both kinds of link. `again(delayMs)` subscribes later. */
function refuse(subscription, error, backoff, again, end) {
  if (subscription.refused(error)) again(0);
  else if (subscription.hasBegun && !LASTING_CODES.has(error.code)) again(backoff.nextDelayMs());
  else end(error);
}

/** One WebSocket for commands, answers and many rooms; it reconnects whenever the connection is lost. */
class SocketLink {
  #socket;
  #isOpen = false;
  #isConnecting = false;
  #isClosed = false;
  #numbers = 0;
  #unanswered = new Map();
  #waiting = new Set();
  #rooms = new Map();
  #heardAt = 0;
  #trouble = "not connected yet";

  constructor(settings, http) {
    this.settings = settings;
    this.http = http;
    this.backoff = new Backoff(settings.retryDelayMsMin, settings.retryDelayMsMax);
    this.url = settings.url.replace(/^http/, "ws") + "/ws";
  }

  canTake(room) {
    return !this.#rooms.has(room) && this.#rooms.size < ROOMS_PER_SOCKET_MAX;
  }

  async command(name, payload, isWrite) {
    const deadline = Date.now() + this.settings.timeoutMs;
    for (;;) {
      await this.#opened(deadline);
      try {
        return await this.#asked(name, payload, deadline, isWrite);
      } catch (error) {
        if (isWrite || error.code !== "ConnectionLost" || Date.now() >= deadline) throw error;
      }
    }
  }

  add(subscription) {
    this.#rooms.set(subscription.room, subscription);
    if (this.#isOpen) this.#subscribe(subscription);
    else this.#connect();
  }

  reattach(subscription) {
    subscription.isPaused = false;
    if (this.#isOpen) this.#subscribe(subscription);
  }

  leave(subscription) {
    if (this.#rooms.get(subscription.room) !== subscription) return;
    this.#rooms.delete(subscription.room);
    if (this.#isOpen) this.#unsubscribe(subscription.room);
  }

  close() {
    this.#isClosed = true;
    const closed = new KwireError("Closed", "the client was closed");
    for (const subscription of [...this.#rooms.values()]) subscription.ended(closed);
    this.#rooms.clear();
    this.#socket?.close();
  }

  #opened(deadline) {
    if (this.#isClosed) throw new KwireError("Closed", "the client was closed");
    if (this.#isOpen) return Promise.resolve();
    this.#connect();
    return new Promise((resolve, reject) => {
      const waiter = () => {
        clearTimeout(timer);
        this.#waiting.delete(waiter);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(waiter);
        reject(new KwireError("Unreachable", `no connection to ${this.url}: ${this.#trouble}`));
      }, deadline - Date.now());
      this.#waiting.add(waiter);
    });
  }

  #asked(name, payload, deadline, isWrite) {
    if (this.#unanswered.size >= UNANSWERED_MAX) throw new KwireError("TooManyRequests", "too many are unanswered");
    return new Promise((resolve, reject) => {
      let timer;
      const number = this.#send(name, payload, (frame) => {
        clearTimeout(timer);
        if (frame === undefined) reject(new KwireError(isWrite ? "PublishUncertain" : "ConnectionLost", this.#trouble));
        else if (frame.error !== undefined) reject(refusalOf(frame.error));
        else resolve(frame.result);
      });
      timer = setTimeout(() => {
        this.#unanswered.delete(number);
        reject(new KwireError("AnswerTimeout", `no answer to ${name} in time`));
      }, deadline - Date.now());
    });
  }

  /** Calls `answer` with the frame, or undefined if the connection is lost first. Throws `tooLong` before sending. */
  #send(command, payload, answer = () => {}) {
    const number = ++this.#numbers;
    const text = JSON.stringify({ request_id: number, command, payload });
    if (text.length > TEXT_CHARACTERS_MAX) throw tooLong;
    if (this.#socket === undefined) {
      queueMicrotask(() => answer(undefined));
      return number;
    }
    this.#unanswered.set(number, answer);
    this.#socket.send(text);
    return number;
  }

  #subscribe(subscription) {
    this.#send("stream.subscribe", subscription.cursor.request(), (frame) => {
      if (frame === undefined || subscription.isOver) return;
      if (frame.error !== undefined) this.#refused(subscription, refusalOf(frame.error));
      else if (subscription.answered(frame.result)) {
        this.#unsubscribe(subscription.room);
        this.#subscribe(subscription);
      }
    });
  }

  #unsubscribe(room) {
    this.#send("stream.unsubscribe", { room });
  }

  #refused(subscription, error) {
    refuse(subscription, error, this.backoff, (delayMs) => this.#again(subscription, delayMs), (reason) => {
      this.#rooms.delete(subscription.room);
      subscription.ended(reason);
    });
  }

  async #again(subscription, delayMs) {
    const socket = this.#socket;
    await sleep(delayMs);
    // It was already sent again on another socket.
    if (this.#isOpen && this.#socket === socket && !subscription.isOver) this.#subscribe(subscription);
  }

  #connect() {
    if (this.#isConnecting || this.#isOpen || this.#isClosed) return;
    this.#isConnecting = true;
    if (this.settings.credentials.Authorization === undefined) this.#openSocket();
    else this.#connectWithTicket();
  }

  /** Browsers cannot set the headers of a WebSocket: a ticket in the subprotocol stands for the credentials. */
  async #connectWithTicket() {
    let protocol;
    try {
      protocol = `kwire.ticket.${(await this.http.call("POST", "/tickets")).ticket}`;
    } catch (error) {
      if (error.code !== "AuthenticationDisabled") {
        this.#isConnecting = false;
        this.#trouble = String(error);
        if (error.code === "Unauthorized") for (const one of [...this.#rooms.values()]) this.#refused(one, error);
        this.#connectLater();
        return;
      }
    }
    if (!this.#isClosed) this.#openSocket(protocol);
  }

  #openSocket(protocol) {
    const { WebSocket } = this.settings;
    const socket = protocol === undefined ? new WebSocket(this.url) : new WebSocket(this.url, [protocol]);
    this.#socket = socket;
    const openedAt = { ms: undefined };
    const giveUp = setTimeout(() => this.#lost(socket, openedAt, "no connection in time"), CONNECT_TIMEOUT_MS);
    let probe;
    socket.onopen = () => {
      clearTimeout(giveUp);
      if (this.#socket !== socket) return;
      openedAt.ms = this.#heardAt = Date.now();
      this.#isConnecting = false;
      this.#isOpen = true;
      probe = setInterval(() => this.#probe(socket, openedAt), this.settings.quietMs / 2);
      for (const subscription of this.#rooms.values()) if (!subscription.isPaused) this.#subscribe(subscription);
      for (const waiter of [...this.#waiting]) waiter();
    };
    socket.onmessage = ({ data }) => {
      if (this.#socket === socket && typeof data === "string") this.#received(socket, openedAt, data);
    };
    const ended = (reason) => {
      clearTimeout(giveUp);
      clearInterval(probe);
      this.#lost(socket, openedAt, reason);
    };
    // Some WebSocket classes send no close event if they were never open (Node 20).
    socket.onerror = () => ended("failed");
    socket.onclose = ({ code }) => ended(`closed with code ${code}`);
  }

  /** Browsers do not expose pings, so a command is used as a probe: any answer shows that the server is alive. */
  #probe(socket, openedAt) {
    if (this.#socket !== socket) return;
    const quietMs = Date.now() - this.#heardAt;
    if (quietMs > this.settings.quietMs * 1.5) this.#lost(socket, openedAt, "the server is silent");
    else if (quietMs > this.settings.quietMs / 2) this.#send("stream.unsubscribe", { room: "kwire-probe" });
  }

  #lost(socket, openedAt, reason) {
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    this.#isOpen = this.#isConnecting = false;
    this.#trouble = reason;
    socket.close();
    for (const subscription of this.#rooms.values()) subscription.isAttached = false;
    const unanswered = this.#unanswered;
    this.#unanswered = new Map();
    for (const answer of unanswered.values()) answer(undefined);
    if (openedAt.ms !== undefined) this.backoff.lived(Date.now() - openedAt.ms);
    this.#connectLater();
  }

  #connectLater() {
    if (!this.#isClosed && (this.#rooms.size > 0 || this.#waiting.size > 0)) {
      setTimeout(() => this.#connect(), this.backoff.nextDelayMs());
    }
  }

  #received(socket, openedAt, text) {
    this.#heardAt = Date.now();
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      this.#lost(socket, openedAt, "a frame that is none of kwire's");
      return;
    }
    if (frame.control === undefined && frame.offset === undefined) {
      const answer = this.#unanswered.get(frame.request_id);
      this.#unanswered.delete(frame.request_id);
      answer?.(frame);
      return;
    }
    const subscription = this.#rooms.get(frame.room);
    if (subscription === undefined) return;
    if (frame.control === "closed") {
      if (!subscription.isAttached) return;
      subscription.isAttached = false;
      if (LASTING_CODES.has(frame.code)) this.#refused(subscription, closedError(frame));
      else this.#again(subscription, this.backoff.nextDelayMs());
      return;
    }
    subscription.received(frame, text.length);
    if (!subscription.hasSpace && subscription.isAttached) {
      subscription.isAttached = false;
      subscription.isPaused = true;
      this.#unsubscribe(subscription.room);
    }
  }
}

const closedError = ({ code, reason, offset }) => new KwireError(code, reason, { offset });

/** The link without a WebSocket: one request per command, one streaming answer of lines per subscription. */
class LinesLink {
  #readers = new Map();

  constructor(settings, http) {
    this.settings = settings;
    this.http = http;
  }

  canTake() {
    return true;
  }

  command(command, payload, isWrite) {
    return this.http.call("POST", "/api/v1/command", { command, payload }, isWrite);
  }

  add(subscription) {
    const reader = { abort: new AbortController() };
    this.#readers.set(subscription, reader);
    this.#run(subscription, reader);
  }

  reattach() {}

  leave(subscription) {
    this.#readers.get(subscription)?.abort.abort();
    this.#readers.delete(subscription);
  }

  close() {
    for (const subscription of [...this.#readers.keys()]) {
      subscription.ended(new KwireError("Closed", "the client was closed"));
      this.leave(subscription);
    }
  }

  async #run(subscription, reader) {
    const backoff = new Backoff(this.settings.retryDelayMsMin, this.settings.retryDelayMsMax);
    while (!subscription.isOver) {
      const beganAt = Date.now();
      let delayMs;
      try {
        await this.#read(subscription, reader);
      } catch (error) {
        if (error instanceof KwireError) {
          refuse(subscription, error, backoff, (ms) => (delayMs = ms), (reason) => subscription.ended(reason));
        }
      }
      subscription.isAttached = false;
      backoff.lived(Date.now() - beganAt);
      if (!subscription.isOver) await sleep(delayMs ?? backoff.nextDelayMs());
    }
    this.leave(subscription);
  }

  /** Runs until the stream is lost; rejects with a KwireError if the server refuses. */
  async #read(subscription, reader) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    reader.abort.signal.addEventListener("abort", stop);
    let quiet = setTimeout(stop, CONNECT_TIMEOUT_MS);
    try {
      const url = this.settings.url + subscription.source.pathOf(subscription.cursor.request());
      const answer = await this.settings.fetch(url, {
        headers: { Accept: "application/x-ndjson", ...this.settings.credentials },
        signal: attempt.signal,
      });
      if (!answer.ok) throw await refusalOfAnswer(answer);
      const decoder = new TextDecoder();
      let rest = "";
      for (const stream = answer.body.getReader(); ; ) {
        await subscription.space();
        const { value, done } = await stream.read();
        if (done || subscription.isOver) return;
        clearTimeout(quiet);
        quiet = setTimeout(stop, this.settings.quietMs * 2);
        const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = lines.pop();
        if (rest.length > LINE_CHARACTERS_MAX) return;
        for (const line of lines) if (line !== "" && this.#line(subscription, line)) return;
      }
    } finally {
      clearTimeout(quiet);
      attempt.abort();
      reader.abort.signal.removeEventListener("abort", stop);
    }
  }

  /** True if the stream must be reopened. */
  #line(subscription, line) {
    const frame = subscription.source.frameOf(JSON.parse(line));
    if (frame.control === "subscribed") return subscription.answered(frame);
    if (frame.control === "closed") {
      if (LASTING_CODES.has(frame.code)) throw closedError(frame);
      return true;
    }
    subscription.received(frame, line.length);
    return false;
  }
}

function queryOf(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined) continue;
    if (Array.isArray(value) && value.some((each) => each.includes(","))) {
      throw new KwireError("BadRequest", "without a WebSocket, event types must not contain commas");
    }
    query.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  return query;
}

async function refusalOfAnswer(answer) {
  const text = await answer.text();
  try {
    return refusalOf(JSON.parse(text).error);
  } catch {
    return new KwireError(`Http${answer.status}`, text.slice(0, 200));
  }
}

/** Single requests with JSON bodies. */
class Http {
  constructor(settings) {
    this.settings = settings;
  }

  async call(method, path, body, isWrite = false, { headers = {}, timeoutMs = this.settings.timeoutMs } = {}) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), timeoutMs);
    try {
      const answer = await this.settings.fetch(this.settings.url + path, {
        method,
        headers: {
          ...(body === undefined ? {} : { "Content-Type": "application/json" }),
          ...this.settings.credentials,
          ...headers,
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: abort.signal,
      });
      if (!answer.ok) throw await refusalOfAnswer(answer);
      return await answer.json();
    } catch (error) {
      if (error instanceof KwireError) throw error;
      if (abort.signal.aborted) throw new KwireError("AnswerTimeout", `no answer to ${method} ${path} in time`);
      // fetch does not distinguish a refused connection from one that was lost later.
      throw new KwireError(isWrite ? "PublishUncertain" : "ConnectionLost", String(error.cause ?? error));
    } finally {
      clearTimeout(timer);
    }
  }
}

function bodyOf({ type, data, metadata, eventId, key }) {
  return { event_type: type, data, metadata, event_id: eventId, key };
}

/** Publish, subscribe, history. */
class Stream {
  #links = [];

  constructor(settings, http) {
    this.settings = settings;
    this.http = http;
  }

  /** Resolves when the event is stored: { eventId, offset, subscribersNotified }. */
  async publish(room, eventType, data, { metadata, eventId, key } = {}) {
    const event = bodyOf({ type: eventType, data, metadata, eventId, key });
    let result;
    try {
      result = await this.#linkFor().command("stream.publish", { room, ...event }, true);
    } catch (error) {
      if (error !== tooLong) throw error;
      result = await this.http.call("POST", `/rooms/${encodeURIComponent(room)}/events`, event, true);
    }
    return { eventId: result.event_id, offset: result.offset, subscribersNotified: result.subscribers_notified };
  }

  /** Store up to 1,000 events in one request, atomically and with consecutive offsets. */
  async publishMany(room, events) {
    if (events.length === 0) return [];
    const body = events.map(bodyOf);
    const result = await this.http.call("POST", `/rooms/${encodeURIComponent(room)}/events`, body, true);
    return result.event_ids.map((eventId, index) => ({
      eventId,
      offset: result.offset + index,
      subscribersNotified: result.subscribers_notified,
    }));
  }

  /** Subscribe to a room; resolves when the server has subscribed. */
  async subscribe(room, options = {}) {
    return subscribed(ROOM, new Cursor(room, options), this.#linkFor(room), this.settings.timeoutMs);
  }

  /** Stored events, both ends included: { events, oldestOffset, newestOffset }. */
  async history(room, { fromOffset, toOffset, limit } = {}) {
    const payload = { room, from_offset: fromOffset ?? undefined, to_offset: toOffset ?? undefined, limit };
    const result = await this.#linkFor().command("stream.history", payload, false);
    return {
      events: result.events.map((event) => itemOf({ room, ...event })),
      oldestOffset: result.oldest_offset,
      newestOffset: result.newest_offset,
    };
  }

  close() {
    for (const link of this.#links.splice(0)) link.close();
  }

  #linkFor(room) {
    let link = this.#links.find((each) => room === undefined || each.canTake(room));
    if (link === undefined) {
      link = this.settings.WebSocket ? new SocketLink(this.settings, this.http) : new LinesLink(this.settings, this.http);
      this.#links.push(link);
    }
    return link;
  }
}

/** The event store: publish and read events with schemas, subscribe to all events or to one topic. */
class Events {
  #link;

  constructor(settings, http) {
    this.settings = settings;
    this.http = http;
    this.#link = new LinesLink(settings, http);
  }

  /** Store one event; resolves to its id. */
  async publish(topic, type, payload, { idempotencyKey, ...more } = {}) {
    return (await this.publishMany([{ topic, type, payload, ...more }], { idempotencyKey }))[0];
  }

  /**
   * Store events atomically, in one or many topics; resolves to their ids in order. Every call has an idempotency key,
   * generated or yours: a request whose answer was lost is sent again until `timeoutMs` has passed, and stored once.
   */
  async publishMany(events, { idempotencyKey = newKey() } = {}) {
    if (events.length === 0) return [];
    const body = events.map(storedBodyOf);
    const backoff = new Backoff(this.settings.retryDelayMsMin, this.settings.retryDelayMsMax);
    const deadline = Date.now() + this.settings.timeoutMs;
    for (;;) {
      let trouble;
      try {
        const options = { headers: { "Idempotency-Key": idempotencyKey }, timeoutMs: deadline - Date.now() };
        return (await this.http.call("POST", "/events", body, true, options)).eventIds;
      } catch (error) {
        trouble = UNCERTAIN_CODES.has(error.code) ? new KwireError("PublishUncertain", error.message) : error;
      }
      const delayMs = backoff.nextDelayMs();
      if (!trouble.isUncertain || Date.now() + delayMs >= deadline) throw trouble;
      await sleep(delayMs);
    }
  }

  /** A page of events: { events, next }. `since` and `before` are ids and not part of it, `date` is a day in UTC. */
  async read(topic, { since, before, date, limit, isBackwards = false } = {}) {
    const query = { sinceEventId: since, beforeEventId: before, date, limit };
    if (isBackwards) query.order = "backwards";
    const page = await this.http.call("GET", `/topics/${encodeURIComponent(topic)}/events?${queryOf(query)}`);
    return { events: page.events.map(storedEventOf), next: page.next ?? undefined };
  }

  /** All events up to now, read page by page. */
  async *readAll(topic, { since, date } = {}) {
    do {
      const page = await this.read(topic, { since, date, limit: PAGE_EVENTS });
      yield* page.events;
      since = page.next;
    } while (since !== undefined);
  }

  /** The newest event, or undefined; its version is the `expectedVersion` of the next one. */
  async last(topic) {
    const page = await this.http.call("GET", `/topics/${encodeURIComponent(topic)}/events?last=true`);
    return page.events.map(storedEventOf)[0];
  }

  async event(id) {
    return storedEventOf(await this.http.call("GET", `/events/${encodeURIComponent(id)}`));
  }

  /** All events in global order. `fromPosition` absent: new events only; N: from N on; -N: the last N; or "oldest". */
  subscribeAll({ fromPosition, ...options } = {}) {
    return this.#subscribed("all", storeSource("/subscribe/all", "position"), fromPosition, options);
  }

  /** The events of one topic; `fromVersion` is like `fromPosition`. */
  subscribeStream(topic, { fromVersion, ...options } = {}) {
    const path = `/subscribe/streams/${encodeURIComponent(topic)}`;
    return this.#subscribed(topic, storeSource(path, "version"), fromVersion, options);
  }

  close() {
    this.#link.close();
  }

  #subscribed(name, source, fromOffset, { resume, onLag = "catchup", types }) {
    const cursor = new Cursor(name, { fromOffset, resume, onLag, types });
    return subscribed(source, cursor, this.#link, this.settings.timeoutMs);
  }
}

function storedBodyOf({ topic, type, payload, metadata, key, eventId, expectedVersion }) {
  return { topic, type, payload, metadata, key, eventId, expectedVersion };
}

/** `crypto.randomUUID` is missing on pages that were loaded without TLS from another machine. */
function newKey() {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Lists, creates, describes and deletes rooms. */
class Rooms {
  constructor(http) {
    this.http = http;
  }

  /** The names of all rooms, read page by page. */
  async *list(prefix) {
    let after;
    do {
      const page = await this.http.call("GET", `/rooms?${queryOf({ limit: PAGE_ROOMS, prefix, after })}`);
      for (const { room } of page.rooms) yield room;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  /** Create a room, or change its retention: { retention_mode, retention_hours, max_events }. */
  create(room, settings = {}) {
    return this.http.call("PUT", `/rooms/${encodeURIComponent(room)}`, settings);
  }

  get(room) {
    return this.http.call("GET", `/rooms/${encodeURIComponent(room)}`);
  }

  async delete(room) {
    await this.http.call("DELETE", `/rooms/${encodeURIComponent(room)}`);
  }
}

export class KwireClient {
  /**
   * The default `url` is the server from which this module was loaded, otherwise this machine. Options: `WebSocket` (a
   * class; null: none), `fetch`, `timeoutMs`, `quietMs`, `queueItemsMax`, `retryDelayMsMin`, `retryDelayMsMax`, and
   * `user` and `password` for a server with authentication.
   */
  constructor(url = homeOf(import.meta.url), options = {}) {
    const settings = {
      url: String(url).replace(/\/+$/, ""),
      credentials: credentialsOf(options),
      WebSocket: options.WebSocket === undefined ? globalThis.WebSocket : options.WebSocket,
      fetch: options.fetch ?? ((...args) => globalThis.fetch(...args)),
      timeoutMs: options.timeoutMs ?? TIMEOUT_MS,
      retryDelayMsMin: options.retryDelayMsMin ?? RETRY_DELAY_MS_MIN,
      quietMs: options.quietMs ?? QUIET_MS,
      queueItemsMax: options.queueItemsMax ?? QUEUE_ITEMS_MAX,
      retryDelayMsMax: options.retryDelayMsMax ?? RETRY_DELAY_MS_MAX,
    };
    const http = new Http(settings);
    this.stream = new Stream(settings, http);
    this.rooms = new Rooms(http);
    this.events = new Events(settings, http);
  }

  /** End all subscriptions and connections. */
  close() {
    this.stream.close();
    this.events.close();
  }
}

/** The header with the user name and the password, in UTF-8. */
function credentialsOf({ user, password = "" }) {
  if (user === undefined) return {};
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return { Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` };
}

function homeOf(moduleUrl) {
  return moduleUrl.startsWith("http") ? new URL(moduleUrl).origin : "http://127.0.0.1:8082";
}
