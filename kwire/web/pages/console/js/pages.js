// The pages of the console. The order of the navigation is the order here; `key` is the second key of "g t".
//
// A page module exports `title` (a text, or a function of the path's parameters) and `render(element, view)`. `view` is
// a View of view.js: the parameters, the query, a signal that is aborted when the page is left, and `every`.
// `needs` is an operation on the cluster without which the page is not offered, or AUDIT for the right to read the audit
// log. A page without `section` is not in the navigation: `parent` is the path of the page that is marked there.
export const SECTIONS = ["", "Data", "Delivery", "Access", "Server"];

export const PAGES = [
  { path: "/", name: "Overview", icon: "overview", section: "", key: "o", needs: "DESCRIBE", load: () => import("./pages/overview.js") },
  { path: "/topics", name: "Topics", icon: "topics", section: "Data", key: "t", load: () => import("./pages/topics.js") },
  { path: "/topics/:topic/:tab?", parent: "/topics", load: () => import("./pages/topic.js") },
  { path: "/groups", name: "Groups", icon: "groups", section: "Data", key: "c", load: () => import("./pages/groups.js") },
  { path: "/groups/:group/:tab?", parent: "/groups", load: () => import("./pages/group.js") },
  { path: "/transactions", name: "Transactions", icon: "transactions", section: "Data", key: "x", load: () => import("./pages/transactions.js") },
  { path: "/transactions/:transaction", parent: "/transactions", load: () => import("./pages/transaction.js") },
  { path: "/rooms", name: "Rooms", icon: "rooms", section: "Delivery", key: "r", load: () => import("./pages/rooms.js") },
  { path: "/rooms/:room/:tab?", parent: "/rooms", load: () => import("./pages/room.js") },
  { path: "/event-store", name: "Event store", icon: "events", section: "Delivery", key: "e", load: () => import("./pages/event_store.js") },
  { path: "/event-store/:tab", parent: "/event-store", load: () => import("./pages/event_store.js") },
  { path: "/event-store/topics/:topic/:tab?", parent: "/event-store", load: () => import("./pages/event_topic.js") },
  { path: "/webhooks", name: "Webhooks", icon: "webhooks", section: "Delivery", key: "w", load: () => import("./pages/webhooks.js") },
  { path: "/webhooks/:webhook/:tab?", parent: "/webhooks", load: () => import("./pages/webhook.js") },
  { path: "/jobs", name: "Spark jobs", icon: "jobs", section: "Delivery", key: "j", load: () => import("./pages/jobs.js") },
  { path: "/jobs/:run", parent: "/jobs", load: () => import("./pages/job.js") },
  { path: "/users", name: "Users", icon: "users", section: "Access", key: "u", needs: "DESCRIBE", load: () => import("./pages/users.js") },
  { path: "/keys", name: "Keys", icon: "keys", section: "Access", key: "k", needs: "ALTER", load: () => import("./pages/keys.js") },
  { path: "/keys/:key", parent: "/keys", needs: "ALTER", load: () => import("./pages/key.js") },
  { path: "/acls", name: "ACLs", icon: "acls", section: "Access", key: "a", needs: "DESCRIBE", load: () => import("./pages/acls.js") },
  { path: "/quotas", name: "Quotas", icon: "quotas", section: "Access", key: "q", needs: "DESCRIBE_CONFIGS", load: () => import("./pages/quotas.js") },
  { path: "/audit", name: "Audit", icon: "audit", section: "Access", key: "l", needs: "AUDIT", load: () => import("./pages/audit.js") },
  { path: "/server", name: "Server", icon: "server", section: "Server", key: "s", needs: "DESCRIBE", load: () => import("./pages/server.js") },
];
