// The JavaScript client as a program: one JSON command a line on standard input, one JSON answer a line on standard
// output. node driver.mjs FILE-URL-OF-THE-MODULE
import { createInterface } from "node:readline";

const { KwireClient } = await import(process.argv[2]);
const clients = new Map();
const subscriptions = new Map();

const calls = {
  async client({ name, url, transport, options }) {
    clients.set(name, new KwireClient(url, { ...options, ...(transport === "lines" ? { WebSocket: null } : {}) }));
    return transport === "lines" || globalThis.WebSocket !== undefined;
  },
  async close({ name }) {
    clients.get(name).close();
  },
  async publish({ name, room, type, data, options }) {
    return clients.get(name).stream.publish(room, type, data, options);
  },
  async publishMany({ name, room, events }) {
    return clients.get(name).stream.publishMany(room, events);
  },
  async history({ name, room, options }) {
    return clients.get(name).stream.history(room, options);
  },
  async subscribe({ name, subscription, room, options }) {
    subscriptions.set(subscription, await clients.get(name).stream.subscribe(room, options));
  },
  async next({ subscription, count }) {
    const items = [];
    while (items.length < count) items.push(await subscriptions.get(subscription).next());
    return items;
  },
  async events({ subscription, count }) {
    const events = [];
    while (events.length < count) events.push(await subscriptions.get(subscription).nextEvent());
    return events;
  },
  async looped({ subscription, count }) {
    const data = [];
    for await (const item of subscriptions.get(subscription)) {
      if (item.kind === "event") data.push(item.data);
      if (data.length === count) break;
    }
    return data;
  },
  async position({ subscription }) {
    return subscriptions.get(subscription).position ?? null;
  },
  async closeSubscription({ subscription }) {
    subscriptions.get(subscription).close();
  },
  async storeEvents({ name, events, options }) {
    return clients.get(name).events.publishMany(events, options);
  },
  async readEvents({ name, topic, options }) {
    return clients.get(name).events.read(topic, options);
  },
  async readAllEvents({ name, topic, options }) {
    const events = [];
    for await (const event of clients.get(name).events.readAll(topic, options)) events.push(event);
    return events;
  },
  async lastEvent({ name, topic }) {
    return clients.get(name).events.last(topic);
  },
  async storedEvent({ name, eventId }) {
    return clients.get(name).events.event(eventId);
  },
  async subscribeAll({ name, subscription, options }) {
    subscriptions.set(subscription, await clients.get(name).events.subscribeAll(options));
  },
  async subscribeStream({ name, subscription, topic, options }) {
    subscriptions.set(subscription, await clients.get(name).events.subscribeStream(topic, options));
  },
  async rooms({ name, prefix }) {
    const names = [];
    for await (const room of clients.get(name).rooms.list(prefix)) names.push(room);
    return names;
  },
  async createRoom({ name, room, settings }) {
    return clients.get(name).rooms.create(room, settings);
  },
  async deleteRoom({ name, room }) {
    await clients.get(name).rooms.delete(room);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, ...args } = JSON.parse(line);
  calls[call](args).then(
    (result) => console.log(JSON.stringify({ id, result: result ?? null })),
    (error) =>
      console.log(JSON.stringify({ id, error: { code: error.code ?? error.name, message: error.message, details: error.details ?? {} } })),
  );
}
process.exit(0);
