// The transactional ids that the coordinator knows.
import { kafka, throwFirst } from "../api.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, emptyState, pageHeader } from "../elements.js";
import { url } from "../router.js";
import { dataTable } from "../table.js";

const REFRESH_MS = 5_000;
const STATE_KINDS = { Ongoing: "info", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good", CompleteAbort: "" };

export const stateBadge = (state) => badge(state, STATE_KINDS[state] ?? "");

export const title = "Transactions";

export async function render(element, view) {
  const table = dataTable({
    label: "Transactional ids",
    noun: "transactional id",
    view,
    columns: [
      { name: "Transactional id", value: (one) => one.transactional_id },
      { name: "State", value: (one) => one.transaction_state, render: (one) => stateBadge(one.transaction_state), width: "12rem" },
      { name: "Producer id", value: (one) => one.producer_id, text: String, kind: "number", width: "9rem", hideBelow: 640 },
    ],
    key: (one) => one.transactional_id,
    href: (one) => url("/transactions", one.transactional_id),
    filter: (one) => `${one.transactional_id} ${one.transaction_state}`,
    sort: "Transactional id",
    empty: emptyState({ icon: "transactions", title: "No transactions yet", text: "A transactional id appears when a producer with transactional.id starts." }),
  });
  show(
    element,
    pageHeader({ title: "Transactions", about: "Transactional ids and the state of their last transaction." }),
    h("div", { class: "stack" }, table.element, commandHint(line("kwire", "txn", "list")).element),
  );
  view.every(REFRESH_MS, async () => {
    try {
      const answer = throwFirst(await kafka("ListTransactions", { state_filters: [], producer_id_filters: [] }, { signal: view.signal }));
      table.setRows(answer.transaction_states);
    } catch (error) {
      if (!error.code) throw error;
      table.setFailure(error);
    }
  });
}
