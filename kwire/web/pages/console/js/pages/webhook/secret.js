// The secret with which deliveries are signed. It is shown once.
import { codeBlock, line } from "../../command.js";
import { post } from "../../api.js";
import { openDialog } from "../../dialog.js";
import { h } from "../../dom.js";
import { button, notice } from "../../elements.js";
import { field, formDialog } from "../../form.js";
import { count } from "../../format.js";

const OVERLAP_HOURS = 24;
const OVERLAP_HOURS_MAX = 8_760;

export function showSecret(title, secret, about = "") {
  const dialog = openDialog({
    title,
    body: h(
      "div",
      { class: "stack" },
      about && h("p", {}, about),
      notice("This is the only time that the secret is shown. Store it where the receiver finds it.", "warn"),
      codeBlock(secret, { label: "Secret" }),
      h("p", { class: "muted" }, "The receiver verifies the header webhook-signature with it: any library for Standard Webhooks does."),
    ),
    actions: [button("I have stored it", () => dialog.close(), { kind: "primary" })],
  });
}

export function rotateSecret({ id }) {
  formDialog({
    title: "Rotate the secret",
    about: "The server makes a new secret. For some time, deliveries are signed with the old and with the new one, so receivers change over without an error.",
    action: "Rotate secret",
    fields: [
      field({
        name: "hours", label: "Hours with both secrets", type: "number", min: 0, max: OVERLAP_HOURS_MAX, step: "any", required: true, value: OVERLAP_HOURS,
        hint: "0: the old secret ends at once",
      }),
    ],
    command: ({ hours }) => line("kwire", "webhook", "rotate", id, "--overlap-hours", String(hours ?? OVERLAP_HOURS)),
    run: async ({ hours }) => {
      const { secret, previousSecretCount } = await post(`/webhooks/${encodeURIComponent(id)}/rotate-secret`, { overlapHours: hours });
      showSecret("The new secret", secret, `${count(previousSecretCount, "previous secret")} also sign.`);
    },
  });
}
