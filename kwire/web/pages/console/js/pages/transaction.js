// One transactional id: its state, its producer and the partitions of its open transaction.
import { kafka, throwFirst } from "../api.js";
import { commandHint, line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { button, card, emptyState, facts, pageHeader } from "../elements.js";
import { NONE, duration, time } from "../format.js";
import { url } from "../router.js";
import { dataTable } from "../table.js";
import { stateBadge } from "./transactions.js";

const REFRESH_MS = 3_000;
const ONGOING = "Ongoing";

// How long an abort is tried, and the pause between two attempts.
const ABORT_MS = 10_000;
const ABORT_PAUSE_MS = 200;

export const title = ({ transaction }) => transaction;

export async function render(element, view) {
  const id = view.params.transaction;
  const draw = async () => {
    const answer = throwFirst(await kafka("DescribeTransactions", { transactional_ids: [id] }, { signal: view.signal }));
    const found = answer.transaction_states[0];
    const started = found.transaction_start_time_ms;
    const partitions = found.topics.flatMap((one) => one.partitions.map((partition) => ({ topic: one.topic, partition })));
    show(
      element,
      pageHeader({
        title: id,
        parents: [["Transactions", url("/transactions")]],
        badges: [stateBadge(found.transaction_state)],
        actions: found.transaction_state === ONGOING ? [button("Abort", () => terminate(found, draw), { kind: "danger-quiet", icon: "close" })] : [],
      }),
      h("div", { class: "stack" }, card(
        { title: "Transaction" },
        facts([
          ["Producer id", String(found.producer_id)],
          ["Producer epoch", String(found.producer_epoch)],
          ["Time-out", duration(found.transaction_timeout_ms)],
          ["Started", started < 0 ? NONE : time(started)],
          ["Open for", started < 0 ? NONE : duration(Math.max(0, Date.now() - started))],
        ]),
      ),
      dataTable({
        label: "Partitions of the transaction",
        noun: "partition",
        rows: partitions,
        view,
        columns: [
          { name: "Topic", value: (one) => one.topic, render: (one) => h("a", { href: url("/topics", one.topic) }, one.topic) },
          { name: "Partition", value: (one) => one.partition, text: String, kind: "number", width: "8rem" },
        ],
        sort: "Topic",
        empty: emptyState({ icon: "transactions", title: "No open partitions", text: "The producer has no open transaction with records." }),
      }).element,
      commandHint(line("kwire", "txn", "describe", id)).element),
    );
  };
  await draw();
  view.every(REFRESH_MS, draw);
}

async function terminate({ transactional_id, transaction_timeout_ms }, draw) {
  await confirmAction({
    title: `Abort the transaction of ${transactional_id}`,
    effect: "The records of the open transaction are discarded for consumers that read committed records. The producer is fenced: it fails at its next request and has to be started again.",
    command: line("kwire", "txn", "terminate", transactional_id),
    action: "Abort transaction",
    done: `The transaction of ${transactional_id} was aborted.`,
    // A new epoch of the producer ends its open transaction.
    run: () => abort({ transactional_id, transaction_timeout_ms }),
  });
  await draw();
}

// A cluster answers CONCURRENT_TRANSACTIONS until the open transaction has ended.
async function abort(producer) {
  const end = Date.now() + ABORT_MS;
  for (;;) {
    const answer = await kafka("InitProducerId", producer);
    if (answer.error !== "CONCURRENT_TRANSACTIONS" || Date.now() > end) return throwFirst(answer);
    await new Promise((resolve) => setTimeout(resolve, ABORT_PAUSE_MS));
  }
}
