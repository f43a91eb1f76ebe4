// A game lobby whose state is the history of its room: the same events give the same board.
import { h, show } from "../js/dom.js";
import { badge, button, card, emptyState, notice, pageHeader } from "../js/elements.js";
import { clock, count } from "../js/format.js";
import { avatar, client, join, roomState, showError } from "./room.js";

const ENEMIES = ["enemy-1", "enemy-2", "enemy-5"];
const HEALTH = 10;
const MOVES_SHOWN = 30;

export async function render(element, query) {
  const { user, room } = await join(element, query, {
    title: "Game lobby",
    about: "Players attack three enemies together. Players who join late read all moves, and have the same board.",
    room: "game-lobby-42",
    action: "Enter the lobby",
  });
  const board = new Board();
  const state = roomState();
  const error = h("div", {});
  const place = h("div", { class: "stack" });
  show(element, pageHeader({ title: room, badges: [state.element], about: `You play as ${user}.` }), h("div", { class: "stack" }, error, place));
  const publish = async (type, data) => {
    try {
      await client.stream.publish(room, type, { player: user, ...data });
      showError(error, null);
    } catch (failed) {
      showError(error, failed);
    }
  };
  // A page that is closed has no time for a WebSocket. This request outlives it.
  addEventListener("pagehide", () => {
    const event = { event_type: "player_leave", data: { player: user } };
    fetch(`/rooms/${encodeURIComponent(room)}/events`, { method: "POST", keepalive: true, headers: { "Content-Type": "application/json" }, body: JSON.stringify(event) });
  });
  try {
    const subscription = await client.stream.subscribe(room, { fromOffset: 0, replay: true });
    await publish("player_join", {});
    let isLive = false;
    for await (const item of subscription) {
      if (item.kind === "event") board.apply(item);
      else if (item.kind === "gap") board.isWhole = false;
      else if (item.kind === "caught_up") isLive = true;
      if (isLive) {
        state.setLive();
        draw(place, board, user, publish);
      }
    }
  } catch (failed) {
    state.setError();
    showError(error, failed);
  }
}

// Built from events alone.
class Board {
  constructor() {
    this.players = new Set();
    this.hits = new Map();
    this.moves = [];
    this.isWhole = true;
  }

  get isWon() {
    return ENEMIES.every((one) => this.health(one) === 0);
  }

  health(enemy) {
    return Math.max(0, HEALTH - (this.hits.get(enemy) ?? 0));
  }

  apply({ type, data, timestamp, offset }) {
    const player = String(data?.player ?? "?");
    const texts = {
      player_join: () => {
        this.players.add(player);
        return "enters";
      },
      player_leave: () => {
        this.players.delete(player);
        return "leaves";
      },
      player_move: () => {
        this.hits.set(data.target, (this.hits.get(data.target) ?? 0) + 1);
        return `attacks ${data.target}`;
      },
      round_start: () => {
        this.hits.clear();
        return "starts a new round";
      },
    };
    if (!(type in texts)) return;
    this.moves = [{ player, text: texts[type](), at: Date.parse(timestamp), offset }, ...this.moves].slice(0, MOVES_SHOWN);
  }
}

function draw(place, board, user, publish) {
  // The focus stays on the button that was used.
  const focused = document.activeElement?.getAttribute("aria-label");
  const players = [...board.players].sort();
  show(
    place,
    !board.isWhole && notice("The room no longer has its oldest events, so this board is not complete.", "warn"),
    board.isWon && h("div", { class: "notice good won" }, h("b", {}, "All enemies are defeated."), button("New round", () => publish("round_start", {}), { kind: "primary", icon: "refresh" })),
    h("div", { class: "enemies" }, ENEMIES.map((one) => enemyCard(one, board, publish))),
    h(
      "div",
      { class: "lobby-columns" },
      card({ title: "Players", about: count(players.length, "player") }, h("ul", { class: "players" }, players.map((one) => h("li", {}, avatar(one), h("span", {}, one), one === user && badge("you", "accent"))))),
      card({ title: "Moves", about: "newest first" }, board.moves.length ? h("ol", { class: "moves" }, board.moves.map(moveLine)) : emptyState({ icon: "play", title: "No moves yet" })),
    ),
  );
  if (focused) [...place.querySelectorAll("button")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
}

function enemyCard(name, board, publish) {
  const health = board.health(name);
  const attack = h("button", { class: health ? "primary" : "", type: "button", "aria-label": `Attack ${name}`, disabled: health === 0, onclick: () => publish("player_move", { action: "attack", target: name }) }, health ? "Attack" : "Defeated");
  return h(
    "section",
    { class: `card enemy${health ? "" : " down"}`, "aria-label": name },
    h("div", { class: "enemy-head" }, h("h2", {}, name), h("span", { class: "muted" }, `${health} of ${HEALTH}`)),
    h("div", { class: "meter-track health", role: "meter", "aria-label": `Health of ${name}`, "aria-valuemin": 0, "aria-valuemax": HEALTH, "aria-valuenow": health }, h("div", { style: { width: `${(100 * health) / HEALTH}%` } })),
    attack,
  );
}

function moveLine({ player, text, at }) {
  return h("li", {}, avatar(player), h("span", {}, h("b", {}, player), ` ${text}`), h("time", { class: "muted" }, clock(at)));
}
