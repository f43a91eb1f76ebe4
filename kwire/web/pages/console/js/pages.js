// The pages of the console. The order of the navigation is the order here; `key` is the second key of "g t".
//
// A page module exports `title` (a text, or a function of the path's parameters) and `render(element, view)`. `view` is
// a View of view.js: the parameters, the query, a signal that is aborted when the page is left, and `every`.
// `needs` is an operation on the cluster without which the page is not offered, AUDIT for the right to read the audit log, or
// TOPICS for the right to read topics. `route` is the route that the page shows, and `engine` is where there is such a page
// at all: a bridge does not serve every route. A page without `section` is not in the navigation: `parent` is the page marked there.
export const SECTIONS = ["", "Data", "Delivery", "Access", "Server"];

export const PAGES = [
  { path: "/", name: "Overview", icon: "overview", section: "", key: "o", needs: "DESCRIBE", route: "GET /overview", load: () => import("./pages/overview.js") },
  { path: "/topics", name: "Topics", icon: "topics", section: "Data", key: "t", route: "GET /overview/topics", load: () => import("./pages/topics.js") },
  { path: "/topics/:topic/:tab?", parent: "/topics", route: "GET /topics/{topic}", load: () => import("./pages/topic.js") },
  { path: "/groups", name: "Groups", icon: "groups", section: "Data", key: "c", route: "GET /api/v1/groups", load: () => import("./pages/groups.js") },
  { path: "/groups/:group/:tab?", parent: "/groups", route: "GET /api/v1/groups/{group}", load: () => import("./pages/group.js") },
  { path: "/transactions", name: "Transactions", icon: "transactions", section: "Data", key: "x", route: "POST /kafka/ListTransactions", load: () => import("./pages/transactions.js") },
  { path: "/transactions/:transaction", parent: "/transactions", route: "POST /kafka/DescribeTransactions", load: () => import("./pages/transaction.js") },
  { path: "/rooms", name: "Rooms", icon: "rooms", section: "Delivery", key: "r", route: "GET /rooms", load: () => import("./pages/rooms.js") },
  { path: "/rooms/:room/:tab?", parent: "/rooms", route: "GET /rooms", load: () => import("./pages/room.js") },
  { path: "/event-store", name: "Event store", icon: "events", section: "Delivery", key: "e", route: "GET /topics/{topic}/schemas", load: () => import("./pages/event_store.js") },
  { path: "/event-store/:tab", parent: "/event-store", route: "GET /topics/{topic}/schemas", load: () => import("./pages/event_store.js") },
  { path: "/event-store/topics/:topic/:tab?", parent: "/event-store", route: "GET /topics/{topic}/schemas", load: () => import("./pages/event_topic.js") },
  { path: "/webhooks", name: "Webhooks", icon: "webhooks", section: "Delivery", key: "w", route: "GET /webhooks", load: () => import("./pages/webhooks.js") },
  { path: "/webhooks/:webhook/:tab?", parent: "/webhooks", route: "GET /webhooks", load: () => import("./pages/webhook.js") },
  { path: "/jobs", name: "Spark jobs", icon: "jobs", section: "Delivery", key: "j", needs: "TOPICS", route: "GET /rooms", load: () => import("./pages/jobs.js") },
  { path: "/jobs/:run", parent: "/jobs", needs: "TOPICS", route: "GET /rooms", load: () => import("./pages/job.js") },
  { path: "/users", name: "Users", icon: "users", section: "Access", key: "u", needs: "DESCRIBE", route: "GET /users", load: () => import("./pages/users.js") },
  { path: "/keys", name: "Keys", icon: "keys", section: "Access", key: "k", needs: "ALTER", route: "GET /keys", load: () => import("./pages/keys.js") },
  { path: "/keys/:key", parent: "/keys", needs: "ALTER", route: "GET /keys", load: () => import("./pages/key.js") },
  { path: "/acls", name: "ACLs", icon: "acls", section: "Access", key: "a", needs: "DESCRIBE", route: "POST /kafka/DescribeAcls", load: () => import("./pages/acls.js") },
  { path: "/quotas", name: "Quotas", icon: "quotas", section: "Access", key: "q", needs: "DESCRIBE_CONFIGS", route: "POST /kafka/DescribeClientQuotas", load: () => import("./pages/quotas.js") },
  { path: "/audit", name: "Audit", icon: "audit", section: "Access", key: "l", needs: "AUDIT", engine: "server", load: () => import("./pages/audit.js") },
  { path: "/server", name: "Server", icon: "server", section: "Server", key: "s", needs: "DESCRIBE", route: "GET /admin/node", load: () => import("./pages/server.js") },
];
