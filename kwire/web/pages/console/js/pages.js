// The pages of the console. The order of the navigation is the order here; `key` is the second key of "g t".
//
// A page module exports `title` (a text, or a function of the path's parameters) and `render(element, view)`. `view` is
// a View of view.js: the parameters, the query, a signal that is aborted when the page is left, and `every`.
// `needs` is an operation on the cluster without which the page is not offered. A page without `section` is not in the
// navigation: `parent` is the path of the page that is marked there.
export const SECTIONS = ["", "Data", "Delivery", "Access", "Server"];

export const PAGES = [
  { path: "/", name: "Overview", icon: "overview", section: "", key: "o", needs: "DESCRIBE", load: () => import("./pages/overview.js") },
  { path: "/topics", name: "Topics", icon: "topics", section: "Data", key: "t", load: () => import("./pages/topics.js") },
  { path: "/topics/:topic/:tab?", parent: "/topics", load: () => import("./pages/topic.js") },
  { path: "/groups", name: "Groups", icon: "groups", section: "Data", key: "c", load: () => import("./pages/groups.js") },
  { path: "/groups/:group/:tab?", parent: "/groups", load: () => import("./pages/group.js") },
  { path: "/transactions", name: "Transactions", icon: "transactions", section: "Data", key: "x", load: () => import("./pages/transactions.js") },
  { path: "/transactions/:transaction", parent: "/transactions", load: () => import("./pages/transaction.js") },
  { path: "/jobs", name: "Spark jobs", icon: "jobs", section: "Delivery", key: "j", load: () => import("./pages/jobs.js") },
  { path: "/jobs/:run", parent: "/jobs", load: () => import("./pages/job.js") },
  { path: "/server", name: "Server", icon: "server", section: "Server", key: "s", needs: "DESCRIBE", load: () => import("./pages/server.js") },
];
