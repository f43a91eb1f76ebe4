// The page's side of the chat. What was shown, and the position behind it, are kept for as long as the tab lives.
const query = new URLSearchParams(location.search);
const server = query.get("server") ?? "http://127.0.0.1:8082";
const room = query.get("room") ?? "chat-room-1";
const user = query.get("user") ?? "somebody";

const SHOWN_MAX = 500;
const place = `kwire-chat:${server}:${room}`;
const messages = document.getElementById("messages");
const status = document.getElementById("status");
const { KwireClient } = await import(`${server}/kwire.js`).catch((error) => {
  // A page is not told which of the two it was.
  status.textContent = `no answer from ${server}: is it running, and does its kwire.http.origins list ${location.origin}?`;
  throw error;
});
const kept = JSON.parse(sessionStorage.getItem(place) ?? '{"items": []}');
for (const item of kept.items) show(item);

const client = new KwireClient(server);
document.getElementById("form").addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  const input = document.getElementById("text");
  const text = input.value;
  input.value = "";
  try {
    await client.stream.publish(room, "message", { user, text, timestamp: new Date() });
  } catch (error) {
    // If nobody knows whether it was stored, the person decides whether to send it again.
    input.value = text;
    status.textContent = error.isUncertain ? "it is not known whether your message was sent" : error.message;
  }
});

try {
  // The last 50 messages for somebody new; behind the last one shown for somebody who was here.
  const start = kept.position ? { resume: kept.position } : { fromOffset: -50, replay: true };
  const subscription = await client.stream.subscribe(room, start);
  for await (const item of subscription) {
    if (item.kind === "caught_up") {
      status.textContent = `live as ${user} in ${room}`;
      continue;
    }
    if (item.kind === "lagging") continue;
    show(item);
    kept.items = [...kept.items, item].slice(-SHOWN_MAX);
    kept.position = subscription.position;
    sessionStorage.setItem(place, JSON.stringify(kept));
  }
} catch (error) {
  status.textContent = error.message;
}

function show(item) {
  const line = document.createElement("li");
  if (item.kind === "gap") {
    line.className = "mark";
    line.textContent = `messages are missing here (${item.reason})`;
  } else {
    line.dataset.offset = item.offset;
    line.textContent = `${item.data?.user ?? "?"}: ${item.data?.text ?? JSON.stringify(item.data)}`;
  }
  messages.append(line);
  while (messages.children.length > SHOWN_MAX) messages.firstChild.remove();
}
